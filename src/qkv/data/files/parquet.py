"""Parquet files as rows of Python values, read by index. A file is decoded once into the cache, so rows can be read
in any order without holding the file in memory."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...core.optional_libraries import optional_library
from ...core.spec import brief
from ..file_kinds import other_kind
from ..shuffle import text_hash
from ..source import Example, Skipped, Table
from ..tables import ComputedTable
from .cache import Stamp, derived, stamp_of
from .compressed import existing

SUFFIX = ".parquet"


class ParquetRows:
    """The rows of a file, with `columns` alone if these are given.

    features: the features of columns in the JSON form of the library datasets, if it wrote the file.

    Raises ValueError that names the file if it is missing, empty or damaged.
    """

    def __init__(self, path: str | Path, columns: tuple[str, ...] | None = None) -> None:
        self.path = existing(path)
        at = self.path.resolve(), stamp_of(self.path)
        schema = _schema(*at)
        self.names: list[str] = schema.names
        about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        self.features: Mapping[str, Any] = about.get("info", {}).get("features") or {}
        self._table = _table(*at, columns)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, i: int) -> dict[str, Any]:
        try:
            row: dict[str, Any] = self._table.slice(i, 1).to_pylist()[0]
        except UnicodeDecodeError:
            raise ValueError(f"{self.where(i)}: a text is not valid UTF-8") from None
        return row

    def column(self, name: str) -> list[Any]:
        """All values of a column."""
        values: list[Any] = self._table.column(name).to_pylist()
        return values

    def where(self, i: int) -> str:
        """The file and the number of a row, for messages: `'a.parquet', row 7`."""
        return f"{str(self.path)!r}, row {i + 1:,}"


def parquet_table(path: Path, example: Callable[[Any, str], Example | Skipped]) -> Table:
    """The table of a Parquet file: `example(row, where)` for each row."""
    rows = ParquetRows(path)
    return ComputedTable(len(rows), lambda i: example(rows[i], rows.where(i)))


def _library(path: Path, module: str) -> Any:
    return optional_library(f"reading {str(path)!r}", module)


@lru_cache(maxsize=64)
def _schema(path: Path, stamp: Stamp) -> Any:
    arrow, parquet = _library(path, "pyarrow"), _library(path, "pyarrow.parquet")
    try:
        return parquet.read_schema(path)
    except (arrow.ArrowException, OSError) as error:
        raise _damaged(path, error) from None


@lru_cache(maxsize=16)
def _table(path: Path, stamp: Stamp, columns: tuple[str, ...] | None) -> Any:
    """The file as a table of Arrow, in memory if it is small, else mapped from the cache."""
    arrow = _library(path, "pyarrow")
    what = "arrow" if columns is None else f"{text_hash(*columns):016x}.arrow"
    content = derived(path, stamp, what, lambda: _decoded(path, columns))
    table = arrow.ipc.open_stream(arrow.py_buffer(content)).read_all()
    if not table.num_rows:
        raise ValueError(f"{brief(path)} is empty")
    return table


def _decoded(path: Path, columns: tuple[str, ...] | None) -> Iterator[bytes]:
    """The rows in Arrow's stream format, batch by batch."""
    arrow, parquet = _library(path, "pyarrow"), _library(path, "pyarrow.parquet")
    out = io.BytesIO()
    try:
        with parquet.ParquetFile(path) as file:
            names = list(columns or file.schema_arrow.names)
            with arrow.ipc.new_stream(out, arrow.schema(map(file.schema_arrow.field, names))) as writer:
                for batch in file.iter_batches(columns=names):
                    writer.write_batch(batch.select(names))
                    yield out.getvalue()
                    out.seek(0)
                    out.truncate()
        yield out.getvalue()
    except (arrow.ArrowException, OSError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> ValueError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    with path.open("rb") as file:
        beginning = file.read(4096)
    text = "; it is text: give it the name of what it is, such as .csv or .jsonl" if _is_text(beginning) else ""
    kind = None if beginning.startswith(b"PAR1") else other_kind(path, beginning)
    return ValueError(kind or f"{str(path)!r} is not a whole Parquet file ({reason}){text}")


def _is_text(beginning: bytes) -> bool:
    return bool(beginning) and beginning.isascii() and all(byte > 31 or byte in b"\t\n\r" for byte in beginning)
