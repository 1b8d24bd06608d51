"""Results beside the columns of a table: their names, and the files that are written."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from qkv.data.files.parquet import ParquetRows
from qkv.runs.inference.tables.read import FileTable
from qkv.runs.inference.tables.write import check_columns, check_folder, check_output, result_of, write_table
from qkv.runs.tasks.prediction import Prediction


def table(delimiter: str = ",") -> FileTable:
    names = ("text", "prediction")
    cells = (('a, "b"', "x"), ("c\td", None), ("e\rf", "é"))
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
            ["e\rf", "é", "bad", "1.0", "0.0", "[1, 2]"],
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
    with pytest.raises(ValueError, match=r"--out is a folder, or a table that ends in .*, not 'a\.csv\.gz'"):
        check_folder(Path("a.csv.gz"))


def test_a_renamed_column_takes_the_name_of_no_class(tmp_path: Path) -> None:
    rows = [{"text": "a", "probability": "0.9"}]
    given = FileTable(Path("in.csv"), ("text", "probability"), rows, ["a"], ["1"], ("text",))
    result = {"prediction": "2", "probability": 0.75, "probabilities": {"1": 0.25, "2": 0.75}}
    notes = write_table(tmp_path / "out.csv", given, [result])
    assert "'probability_3'" in notes[0]
    assert (tmp_path / "out.csv").read_text().splitlines() == [
        "text,probability,prediction,probability_3,probability_1,probability_2",
        "a,0.9,2,0.75,0.25,0.75",
    ]


def test_columns_of_parquet_keep_types_that_python_lacks(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    made = arrow.table(
        {
            "text": ["a", "b"],
            "nanoseconds": arrow.array([1_700_000_000_123_456_789, None], arrow.timestamp("ns")),
            "large": arrow.array([2**64 - 1, 1], arrow.uint64()),
            "bytes": [b"\x00\xff", None],
            "map": arrow.array([[("a", 1)], []], arrow.map_(arrow.string(), arrow.int32())),
        }
    )
    parquet.write_table(made.replace_schema_metadata({"kept": "yes"}), tmp_path / "in.parquet")
    rows = ParquetRows(tmp_path / "in.parquet")
    given = FileTable(tmp_path / "in.parquet", tuple(rows.names), list(rows), ["a", "b"], ["1", "2"], ("text",))
    for name in ("out.parquet", "out.jsonl", "out.csv"):
        check_columns(tmp_path / name, given)
        write_table(tmp_path / name, given, [{"prediction": "x"}, None])
    read = parquet.read_table(tmp_path / "out.parquet")
    assert read.select(made.column_names).equals(made) and read.schema.metadata[b"kept"] == b"yes"
    assert read.column("prediction").to_pylist() == ["x", None]
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert first["nanoseconds"].startswith("2023-11-14T22:13:20.123456") and first["large"] == 2**64 - 1
    assert first["bytes"] == "AP8=" and second["nanoseconds"] is None
    assert (
        '2023-11-14 22:13:20.123456789,18446744073709551615,AP8=,"[[""a"", 1]]",x' in (tmp_path / "out.csv").read_text()
    )


@pytest.mark.parametrize("values", [(1, "a"), (1, {"a": 1}), (2**70, 1)])
def test_a_column_that_parquet_can_not_hold_is_named_before_anything_is_computed(
    values: tuple[Any, Any], tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    rows = [{"text": "a", "x": value} for value in values]
    given = FileTable(Path("in.jsonl"), ("text", "x"), rows, ["a", "a"], ["1", "2"], ("text",))
    with pytest.raises(ValueError, match=r"the column 'x' can't be written to a Parquet file.*, such as out\.jsonl"):
        check_columns(tmp_path / "out.parquet", given)
    check_columns(tmp_path / "out.jsonl", given)
