"""Records of CSV, TSV and JSON Lines files: columns by name or number, and errors that name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qkv.data.files.records import RecordFormat, open_records
from qkv.data.readers.labelled_text import Labelled
from qkv.data.source import Skipped


def test_columns_by_name_and_by_number(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\n a ,1\n,2\n")
    records = open_records(tmp_path / "a.csv", ("text", "label"), RecordFormat())
    assert records.names == ("text", "label") and len(records) == 2
    assert records.text(0, "text") == "a" and records.get(1, 1) == "2" and records.get(0, 7) is None
    assert records.text(1, "text") == "with an empty 'text'"
    assert records.where(1).endswith("a.csv', line 3")


def test_the_name_decides_the_format_and_other_files_are_labels_and_texts(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": {"b": "x"}}\n')
    assert open_records(tmp_path / "a.jsonl", ("a.b",), RecordFormat()).get(0, "a.b") == "x"
    (tmp_path / "a.txt").write_text("1 a text\n")
    assert open_records(tmp_path / "a.txt", ("text",), RecordFormat()).rows == ((1, ["1", "a text"]),)
    assert RecordFormat(format="tsv").form(Path("a.csv")) == "tsv" and RecordFormat().form(Path("a.csv.gz")) == "csv"


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (("txt",), {}, r"has no column 'txt'; did you mean 'text'"),
        ((2,), {}, "has no column 2: it has 2, numbered from 0"),
        (("text",), {"header": False}, "data.header=false says that"),
    ],
)
def test_missing_columns_are_named(tmp_path: Path, columns: Any, options: dict[str, Any], message: str) -> None:
    (tmp_path / "a.csv").write_text("text,label\na,1\n")
    with pytest.raises(ValueError, match=message):
        open_records(tmp_path / "a.csv", columns, RecordFormat(**options))


def test_columns_are_all_named_or_all_numbered() -> None:
    with pytest.raises(ValueError, match="columns are all named or all numbered, not 'text', 1"):
        Labelled(path="a.csv", text="text", label=1)
    with pytest.raises(ValueError, match="columns are numbered from 0"):
        Labelled(path="a.csv", text=0, label=-1)


def test_lines_with_several_labels_of_fasttext_are_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("__label__pos good film\n__label__neg __label__b bad film\n__label__neg a bad one\n")
    splits = {"validation_path": str(path), "test_path": str(path)}
    table = Labelled(path=str(path), **splits).table("train")
    assert [table[0]["text"], table[2]["text"]] == ["good film", "a bad one"]
    assert isinstance(table[1], Skipped) and "with several labels" in table[1]
