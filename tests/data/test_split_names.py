"""The split that a name tells, and what is said of training files that have the name of another split."""

from __future__ import annotations

from pathlib import Path, PurePath

import numpy as np
import pytest
from PIL import Image

from qkv.data.memory import Memory
from qkv.data.readers.images import Images
from qkv.data.readers.parquet import Parquet
from qkv.data.readers.text import Text
from qkv.data.source import SPLITS, names_of, placed_split, split_of


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train.csv", "train"),
        ("Training-2.tsv.gz", "train"),
        ("de_dev.txt", "validation"),
        ("val1.csv", "validation"),
        ("x_testing.csv", "test"),
        ("test.train.csv", "test"),  # the first word that tells one
        ("latest.csv", None),
        ("wiki.valid.tokens", "validation"),
        ("DEV.csv.gz", "validation"),
        ("eval-00000-of-00001.parquet", "test"),
        ("testimony.txt", None),
        ("training_set", "train"),
    ],
)
def test_a_word_in_a_name_tells_the_split(name: str, split: str | None) -> None:
    assert split_of(PurePath("train", name)) == split


@pytest.mark.slow
def test_the_names_of_splits_are_those_of_datasets() -> None:
    pytest.importorskip("datasets", reason="datasets, a test dependency, is not installed")
    from datasets.data_files import SPLIT_KEYWORDS

    assert {str(split): set(names) for split, names in SPLIT_KEYWORDS.items()} == {s: set(names_of(s)) for s in SPLITS}


def test_the_folder_of_a_file_tells_before_its_name() -> None:
    assert placed_split(PurePath("Train/a/test.txt")) == "train"
    assert placed_split(PurePath("my test/a.txt")) is None  # a title, not the name of a split


def test_training_files_named_after_other_splits_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.txt").write_text("".join(f"word {i} of {name}\n" for i in range(50)))
    notes = " ".join(Text(path=str(tmp_path), documents="line").notes())
    assert "2 training files are of another split, as their names tell (test.txt, valid.txt)" in notes
    monkeypatch.chdir(tmp_path)
    notes = " ".join(Text(path=("train.txt", str(tmp_path / "test.txt")), documents="line").notes())
    assert "1 training file is of another split, as its name tells (test.txt)" in notes
    (tmp_path / "train.txt").unlink()
    assert "another split" not in " ".join(Text(path=str(tmp_path), documents="line").notes())


@pytest.mark.parametrize(("name", "split"), [("dev", "validation"), ("eval", "test")])
def test_a_folder_of_a_split_is_no_class(name: str, split: str, tmp_path: Path) -> None:
    for place in ("train", name):
        for label in ("cat", "dog"):
            (tmp_path / place / label).mkdir(parents=True)
            for i in range(2):
                Image.new("L", (4, 4), i).save(tmp_path / place / label / f"{i}.png")
    source = Images(path=str(tmp_path))
    assert sorted(one["label"] for one in source.examples(split)) == ["cat", "cat", "dog", "dog"]  # type: ignore[arg-type]
    (tmp_path / "more" / "cat").mkdir(parents=True)
    Image.new("L", (4, 4), 9).save(tmp_path / "more" / "cat" / "9.png")
    said = " ".join(Images(path=str(tmp_path)).notes())
    assert "1 file beside the folders of" in said and "'more/cat/9.png', is read for training" in said


def test_parquet_files_belong_to_the_split_in_their_names(tmp_path: Path) -> None:
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    for name in ("train", "dev", "eval", "testimony"):
        parquet.write_table(arrow.table({"text": [name]}), tmp_path / f"{name}-0.parquet")
    source = Parquet.from_dict({"path": str(tmp_path), "text": "text"})
    found = {split: [path.name for path in source.paths(split)] for split in ("train", "validation", "test")}  # type: ignore[arg-type]
    assert found == {
        "train": ["testimony-0.parquet", "train-0.parquet"],
        "validation": ["dev-0.parquet"],
        "test": ["eval-0.parquet"],
    }


def test_rows_under_two_names_of_a_split_are_refused() -> None:
    rows = [{"text": f"row {i}"} for i in np.arange(4)]
    with pytest.raises(ValueError, match="the rows under valid and dev are all of the validation split; join them"):
        Memory.of({"train": rows, "valid": rows[:1], "dev": rows[1:]})
    with pytest.raises(ValueError, match="validation rows are given twice"):
        Memory.of({"train": rows, "valid": rows[:1]}, rows[1:])
    said = Memory.of({"train": rows, "validation": rows[:3], "test": [{"text": "other"}]}).notes()
    assert said == ("3 of 3 validation examples share their first text with training examples",)
