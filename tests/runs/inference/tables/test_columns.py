"""Which columns of a table are inputs."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_untrained import bert

import qkv
from qkv.nn.models.heads.sequence import SequenceClassifier
from qkv.runs.inference.tables.columns import USUAL, choose, fields_of
from qkv.runs.inference.tables.read import read_table


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield


def test_columns_of_the_training_data_come_first(tmp_path: Path) -> None:
    run = bert(SequenceClassifier(labels=2))
    settings = ["data.kind=labelled", "data.path=x.csv", "data.text=body", "data.label=class"]
    object.__setattr__(run, "recipe", qkv.Recipe.load("classify", settings))
    with Path("in.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text", "body"], ["headline", "the words"]])
    table = read_table(Path("in.csv"), run, "predict")
    assert table.columns == ("body",) and list(table.inputs) == ["the words"]
    assert read_table(Path("in.csv"), run, "predict", ["text"]).inputs == ["headline"]
    assert set(fields_of(run, "predict")) <= set(USUAL)


def test_a_column_of_numbers_is_no_text_beside_others() -> None:
    run = bert(SequenceClassifier(labels=2))
    rows = [{"id": "7", "note": None}, {"id": "8", "note": None}]
    with pytest.raises(ValueError, match="has the columns id, note; name the one with the text: --column NAME"):
        choose(run, "predict", Path("in.csv"), ["id", "note"], rows, [])
    assert choose(run, "predict", Path("in.csv"), ["id"], rows, []) == ("id",)
    assert choose(run, "predict", Path("in.csv"), ["id", "note"], [{"id": "a7"}, *rows], []) == ("id",)
