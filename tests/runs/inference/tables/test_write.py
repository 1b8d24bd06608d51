"""Results beside the columns of a table: their names, and the files that are written."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from qkv.runs.inference.tables.read import FileTable
from qkv.runs.inference.tables.write import check_output, result_of, write_table
from qkv.runs.tasks.prediction import Prediction


def table(delimiter: str = ",") -> FileTable:
    names = ("text", "prediction")
    cells = (('a, "b"', "x"), ("c\td", None), ("e\nf", "é"))
    rows = [dict(zip(names, row, strict=True)) for row in cells]
    return FileTable(Path("in.csv"), names, rows, ["a", "c", "e"], ["1", "2", "3"], ("text",), delimiter=delimiter)


RESULTS = [
    {"prediction": "good", "probabilities": {"bad": 0.25, "good": 0.75}},
    None,
    {"prediction": "bad", "probabilities": {"bad": 1.0, "good": 0.0}, "spans": [1, 2]},
]


@pytest.mark.parametrize(("name", "delimiter"), [("out.csv", ","), ("out.tsv", "\t"), ("semi.csv", ";")])
def test_cells_stay_and_results_have_free_names(name: str, delimiter: str, tmp_path: Path) -> None:
    notes = write_table(tmp_path / name, table(";" if name == "semi.csv" else ","), RESULTS)
    assert notes == ("the input has the columns 'prediction' already; the new ones are 'prediction_2'",)
    with (tmp_path / name).open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file, delimiter=delimiter)) == [
            ["text", "prediction", "prediction_2", "probability_bad", "probability_good", "spans"],
            ['a, "b"', "x", "good", "0.25", "0.75", ""],
            ["c\td", "", "", "", "", ""],
            ["e\nf", "é", "bad", "1.0", "0.0", "[1, 2]"],
        ]


def test_a_table_of_tabs_becomes_one_of_commas_in_csv(tmp_path: Path) -> None:
    write_table(tmp_path / "out.csv", table("\t"), [None] * 3)
    assert (tmp_path / "out.csv").read_text().startswith("text,prediction\n")


def test_json_lines_keep_what_is_nested(tmp_path: Path) -> None:
    write_table(tmp_path / "out.json", table(), RESULTS)
    write_table(tmp_path / "out.jsonl", table(), RESULTS)
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert json.loads((tmp_path / "out.json").read_text()) == [json.loads(line) for line in lines]
    first, second, _ = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert first["probabilities"] == {"bad": 0.25, "good": 0.75} and first["prediction"] == "x"
    assert second == {"text": "c\td", "prediction": None, "prediction_2": None, "probabilities": None, "spans": None}


@pytest.mark.parametrize(
    ("fields", "row"),
    [
        ({"words": ["a", "b"], "tags": ["O", "B-X"]}, {"prediction": "O B-X"}),
        ({"question": "q", "answer": "x", "start": 3}, {"prediction": "x", "start": 3}),
        ({"score": 0.5}, {"prediction": 0.5}),
        ({"shares": {"sky": 0.3, "sea": 0.7}}, {"prediction": "sea", "shares": {"sky": 0.3, "sea": 0.7}}),
        (
            {"choice": "b", "number": 1, "choices": [{"probability": 0.1}, {"probability": 0.9}]},
            {"prediction": "b", "probability": 0.9, "number": 1, "probabilities": [0.1, 0.9]},
        ),
        ({"other": 1}, {"other": 1}),
    ],
)
def test_the_main_field_is_the_prediction(fields: dict[str, Any], row: dict[str, Any]) -> None:
    assert result_of(Prediction("in", None, "", fields)) == row


def test_where_no_table_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x\n")
    with pytest.raises(ValueError, match=r"--out is a file that ends in .*\.csv.*, \.npy, not 'a\.txt'"):
        check_output(Path("a.txt"), [], False, [".npy"])
    with pytest.raises(ValueError, match="is the input, which is never written over"):
        check_output(tmp_path / "." / "a.csv", [path], True)
    with pytest.raises(ValueError, match="there is no folder"):
        check_output(tmp_path / "none" / "b.csv", [path], False)
