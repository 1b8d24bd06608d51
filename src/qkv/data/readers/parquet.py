"""Parquet files whose rows are examples for any task."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from ...core.spec import brief
from ..files.compressed import existing
from ..files.parquet import SUFFIX, ParquetRows
from ..holdout import FileSource
from ..source import Split, Table, split_of
from ..tables import ConcatTable
from .rows import RowSource, RowTable


class Parquet(RowSource, FileSource, kind="parquet"):
    """Parquet files. A path is a file or a folder. A word in its name gives the split of a file in a folder (`SPLIT_NAMES`),
    such as `test` in `test-00000-of-00001.parquet`. Files without such a word are training data.

    text, label, source, target …: the columns, see `RowSource`. Classes have their names if the library datasets wrote them.
    folder: the folder of pictures, sounds and videos that rows name; by default that of the file. Others are not read.
    """

    path_fields: ClassVar[tuple[str, ...]] = ("path", "validation_path", "test_path", "folder")

    path: str | None = None
    validation_path: str | None = None
    test_path: str | None = None
    folder: str | None = None

    def paths(self, split: Split) -> tuple[Path, ...]:
        own: str | None = self.split_setting("path", split)
        name = own or self.path
        if name is None:
            raise ValueError("no training data: give data.path, a Parquet file or a folder of them")
        path = Path(name).expanduser()
        if not path.is_dir():
            return (existing(path),) if own else ()
        files = sorted(file for file in path.glob(f"[!.]*{SUFFIX}") if file.is_file())
        if not files:
            raise ValueError(f"there is no file *{SUFFIX} in {brief(path)}")
        if own and split != "train":
            return tuple(files)
        return tuple(file for file in files if (split_of(file) or "train") == split)

    def open(self, split: Split) -> Table:
        tables = []
        for path in self.paths(split):
            rows = ParquetRows(path)
            folder = path.parent if self.folder is None else Path(self.folder).expanduser()
            reader = self.reader(rows.names, rows.features, str(path), (folder,))
            label = reader.columns.get("label")
            chosen = ParquetRows(path, reader.tops)
            labels = chosen.column(label) if label in rows.names and "image" in reader.columns else None
            tables.append(RowTable(chosen, reader, str(path), labels))
        return tables[0] if len(tables) == 1 else ConcatTable(tables)
