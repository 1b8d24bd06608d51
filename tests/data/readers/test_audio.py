"""Sources of sound: classes and splits by folder or by name, rates that differ, and the task that reads them."""

from __future__ import annotations

import io
import tarfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qkv.data.media.audio import encode, resampled
from qkv.data.readers.audio import Sounds
from qkv.data.source import Counts, read
from qkv.data.synthetic.bird_calls import CALLS
from qkv.runs.inference.run import load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train


def tone(hertz: float, rate: int = 8000, seconds: float = 0.2) -> bytes:
    time = np.arange(int(seconds * rate)) / rate
    return encode(np.sin(2 * np.pi * hertz * time).astype(np.float32), rate)


def put(folder: Path, name: str, data: bytes) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(6):
        put(tmp_path, f"train/low/{i}.wav", tone(200 + i))
        put(tmp_path, f"train/high/{i}.wav", tone(2000 + i))
    put(tmp_path, "test/low/a.wav", tone(210))
    put(tmp_path, "validation/high/b.wav", tone(2100))
    return tmp_path


def labels(source: Sounds, split: Any) -> list[str]:
    return [example["label"] for example in source.examples(split, shuffle=False)]


def test_folders_say_class_and_split(folder: Path) -> None:
    source = Sounds(path=str(folder))
    assert sorted(labels(source, "train")) == ["high"] * 6 + ["low"] * 6
    assert labels(source, "test") == ["low"] and labels(source, "validation") == ["high"]


def test_names_say_class_and_split_in_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "all.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        for digit in "0123":
            for index in range(20):
                data = tone(300 + 100 * int(digit) + index)
                member = tarfile.TarInfo(f"{digit}_ann_{index}.wav")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    source = Sounds(path=str(path), label=r"(\d)_[a-z]+_", test=r"_[0-4]\.wav$")
    assert sorted(labels(source, "test")) == sorted("0123" * 5)
    held = labels(source, "validation")
    assert len(held) >= 1 and len(labels(source, "train")) == 60 - len(held)


def test_another_rate_is_refused_skipped_or_made_the_same(folder: Path) -> None:
    put(folder, "train/low/z.wav", tone(205, rate=16_000))
    with pytest.raises(ValueError, match=r"train/low/z\.wav: 16,000 samples a second, and the first file has 8,000"):
        labels(Sounds(path=str(folder)), "train")
    counts, table = Counts(), Sounds(path=str(folder), rates="skip").table("train")
    read(table, range(len(table)), counts)
    assert counts.skipped == {"of another rate than 8,000 Hz": 1}
    same = list(Sounds(path=str(folder), rates="resample").examples("train", shuffle=False))
    assert {len(example["audio"]) for example in same} == {1600} and len(same) == 13


def test_what_is_no_sound_is_counted(folder: Path) -> None:
    put(folder, "train/low/empty.wav", b"")
    put(folder, "train/low/text.wav", b"this is no sound")
    counts, table = Counts(), Sounds(path=str(folder)).table("train")
    assert len(read(table, range(len(table)), counts)) == 12
    assert counts.skipped["empty"] == 1 and counts.skipped.total() == 2


@pytest.mark.parametrize(
    "given, said",
    [
        ({}, "give data.path"),
        ({"path": "nowhere"}, "no folder or file"),
        ({"path": "."}, r"there is no file in '\.'; their names end in \.aif, .* \.wav, \.wave"),
        ({"path": ".", "label": "("}, "regular"),
    ],
)
def test_sources_that_are_none(
    given: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=said):
        Sounds(**given).table("train")


@pytest.mark.slow
def test_it_learns(tmp_path: Path) -> None:
    small = [
        "model.d_model=32",
        "model.n_layers=1",
        "model.d_ff=32",
        "data.train=300",
        "data.test=60",
        "data.noise=0.05",
    ]
    more = [
        "training.max_steps=40",
        "training.eval_every=40",
        "training.schedule.warmup=5",
        "training.optimizer.lr=0.005",
    ]
    done = train(Recipe.load("speech", [*small, *more]), tmp_path / "run", device="cpu")
    assert done.evaluation is not None and done.report is not None
    assert done.evaluation.metrics["accuracy"] > 0.35  # 1/6 by chance
    assert "data:image/png;base64" in done.report.read_text()
    told_of_files(tmp_path / "run", tmp_path)


def told_of_files(path: Path, folder: Path) -> None:
    """A finished run hears files as it heard examples, at another rate too."""
    run = load(path, device="cpu")
    assert run.recipe is not None
    heard = list(islice(run.recipe.data.examples("test"), 12))
    files = [folder / f"{i}.wav" for i in range(len(heard))]
    for example, file in zip(heard, files, strict=True):
        file.write_bytes(encode(np.clip(example["audio"], -1, 1), example["rate"]))
    found = run.classify_files(files)
    assert all(next(iter(one.probabilities)) == one.label and set(one.probabilities) == set(CALLS) for one in found)
    assert all(sum(one.probabilities.values()) == pytest.approx(1, abs=1e-5) for one in found)
    assert sum(one.label == example["label"] for one, example in zip(found, heard, strict=True)) > 3  # 2 by chance
    twice = [encode(resampled(np.clip(e["audio"], -1, 1), 8000, 16000), 16000) for e in heard]
    for file, data in zip(files, twice, strict=True):
        file.write_bytes(data)
    same = [a.label == b.label for a, b in zip(run.classify_files(files), found, strict=True)]
    assert sum(same) > 8  # resampling changes a little
    files[0].write_text("no sound")
    with pytest.raises(ValueError, match=r"0\.wav' can't be read as a sound: it is no sound"):
        run.classify_files(files)
    with pytest.raises(ValueError, match="there is no file"):
        run.classify_files([folder / "none.wav"])
