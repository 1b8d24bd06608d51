"""Parquet files: rows by index, the cache, damaged files, and the message without the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qkv.data.files import cache, parquet
from qkv.data.files.parquet import ParquetRows


def written(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows), path, **options)
    return path


@pytest.fixture(autouse=True)
def fresh() -> None:
    parquet._table.cache_clear()
    parquet._schema.cache_clear()


def test_rows_in_any_order(tmp_path: Path) -> None:
    rows = [{"n": i, "text": f"line {i}", "pair": {"en": "a", "de": [i]}} for i in range(1000)]
    table = ParquetRows(written(tmp_path / "a.parquet", rows, row_group_size=70))
    assert len(table) == 1000 and table.names == ["n", "text", "pair"]
    assert [table[i] for i in (999, 0, 500)] == [rows[999], rows[0], rows[500]]
    chosen = ParquetRows(tmp_path / "a.parquet", ("text", "n"))
    assert chosen[70] == {"text": "line 70", "n": 70} and chosen.column("n")[:3] == [0, 1, 2]


def test_large_files_are_mapped_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "IN_MEMORY", 100)
    path = written(tmp_path / "a.parquet", [{"text": f"line {i}"} for i in range(1000)], row_group_size=100)
    assert ParquetRows(path)[321] == {"text": "line 321"}
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".arrow"]


def test_damaged_and_empty_files_are_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", [{"text": f"line {i}"} for i in range(1000)])
    whole = path.read_bytes()
    for damaged in (whole[:-20], b"no such thing", whole[:50] + bytes(400) + whole[450:]):
        path.write_bytes(damaged)
        with pytest.raises(
            ValueError, match=r"a\.parquet' is not a whole Parquet file \([^\n]+\)(; it is text: [^\n]+)?$"
        ):
            ParquetRows(path)[0]
    empty = written(tmp_path / "b.parquet", [{"text": "a"}])
    pytest.importorskip("pyarrow.parquet").write_table(pytest.importorskip("pyarrow").table({"text": []}), empty)
    with pytest.raises(ValueError, match=r"b\.parquet' is empty"):
        ParquetRows(empty)
    with pytest.raises(ValueError, match=r"there is no file 'nothing\.parquet'"):
        ParquetRows("nothing.parquet")


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(
        ValueError, match=r"a\.parquet' needs pyarrow, which is not installed: pip install 'qkv\[parquet\]'"
    ):
        ParquetRows(tmp_path / "a.parquet")
