"""Folders with a file or a folder for each split: no text of one split is read for another."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.data.files.records import RecordFormat
from qkv.runs.recipes.guess import Guess
from qkv.runs.recipes.guess.folders import of_folder
from qkv.runs.recipes.recipe import Recipe


@pytest.mark.parametrize("layout", ["{}.txt", "wiki.{}.tokens", "{}/a.txt", "{}-1.txt", "deep/{}/b/c.txt"])
def test_each_split_is_read_from_its_own_files(layout: str, tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        path = tmp_path / layout.format(split)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"the {split} text number {i} of all\n" for i in range(60)))
    found = of_folder(tmp_path, RecordFormat())
    assert isinstance(found, Guess) and found.recipe == "lm"
    data = Recipe.load(found.recipe, [*found.settings]).data
    for split, name in (("train", "train"), ("validation", "valid"), ("test", "test")):
        texts = "".join(one["text"] for one in data.examples(split))  # type: ignore[arg-type]
        assert {line.split()[1] for line in texts.splitlines() if line} == {name}


def test_many_files_of_a_split_without_a_folder_are_refused(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for i in range(30):
            (tmp_path / f"{split}{i}.txt").write_text("some words\n")
    found = of_folder(tmp_path, RecordFormat())
    assert isinstance(found, str) and "put the files of each split into one folder" in found


def test_what_a_folder_of_texts_leaves_out_is_told(tmp_path: Path) -> None:
    for name in ("pos/a.txt", "neg/b.txt", "neg/c.txt", "neg/d.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("some words\n")
    (tmp_path / "pos" / "a.wav").write_bytes(b"")
    found = of_folder(tmp_path, RecordFormat())
    assert isinstance(found, Guess)
    said = " ".join(found.seen)
    assert "their folders are not learned as classes (neg, pos)" in said
    assert "1 other text in it are not read" not in said and "1 other text in it is not read (1 × .md" in said
    assert "1 sound in it, such as pos/a.wav, is not read" in said


def test_sounds_with_transcripts_beside_them_are_for_recognition(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        for i in range(3):
            (tmp_path / split / f"{i}.wav").write_bytes(b"")
            (tmp_path / split / f"{i}.txt").write_text("hello")
    found = of_folder(tmp_path, RecordFormat())
    assert isinstance(found, Guess) and found.recipe == "recognize-ctc"
    paths = (f"data.path={tmp_path / 'train'}", f"data.test_path={tmp_path / 'test'}")
    assert found.settings == ("data.kind=transcripts", *paths)


def test_pictures_and_masks_in_the_folder_of_a_split_are_no_classes(tmp_path: Path) -> None:
    for name in ("test/Images/1.png", "train/Images/1.png", "test/Masks/1.png", "train/Masks/1.png"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(b"")
    found = of_folder(tmp_path, RecordFormat())
    assert isinstance(found, str) and f"data.path={tmp_path / 'train'} data.images=Images data.masks=Masks" in found
