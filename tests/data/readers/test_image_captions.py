"""Captions and visual questions in JSON Lines: images by name, and errors for missing ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qkv.data.readers.image_captions import Captions


def source(tmp_path: Path, *records: dict[str, str]) -> Captions:
    (tmp_path / "a.png").touch()
    path = tmp_path / "captions.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return Captions(path=str(path))


def test_captions_and_questions(tmp_path: Path) -> None:
    captions = source(
        tmp_path,
        {"image": "a.png", "answer": " a dog "},
        {"image": "a.png", "question": "what is it ?", "answer": "a dog"},
        {"image": "a.png", "answer": " "},
    )
    table = captions.open("train")
    where = f"{str(tmp_path / 'captions.jsonl')!r}, line 1"
    assert table[0] == {"image": tmp_path / "a.png", "question": "", "answer": "a dog", "where": where}
    assert table[1]["question"] == "what is it ?" and table[2] == "with an empty answer"  # type: ignore[index]
    keys = {captions.hold_out_key(table, i, table[i]) for i in range(2)}  # type: ignore[arg-type]
    assert len(keys) == 1


def test_images_of_another_folder_and_fields_of_another_name(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "b.png").touch()
    captions = source(tmp_path, {"file": "b.png", "caption": "a cat"})
    captions = captions.replace(images=str(tmp_path / "images"), image_field="file", answer_field="caption")
    assert captions.open("train")[0]["image"] == tmp_path / "images" / "b.png"  # type: ignore[index]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"image": "a.png"}, "line 1, has no text 'answer'"),
        ({"answer": "a dog"}, "line 1, has no text 'image'"),
        ({"image": "c.png", "answer": "a dog"}, "there is no picture .*c.png'; set data.images to its folder"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, record: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        source(tmp_path, record).open("train")[0]
