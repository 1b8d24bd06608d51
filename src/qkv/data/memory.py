"""`Memory`: examples passed from Python as lists, data frames or datasets, without a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from pydantic import Field, PrivateAttr

from ..core.spec import brief, counted
from .holdout import HoldOutSource
from .readers.rows import RowReader, as_files, class_names_of, row_hold_out_key
from .source import SPLIT_NAMES, SPLITS, TEXTS, Example, Skipped, Split, Table
from .tables import ComputedTable

_INSPECTED = 1000  # rows among which the first that is not skipped shows the columns


class Memory(HoldOutSource, kind="memory"):
    """Examples in memory, see `Memory.of`.

    A recipe or a run directory has only the fingerprint (a checksum of all rows) and the number of rows of each split; 0 is
    a split that is held out of the training rows. To use the data again, pass the same rows again.

    missing: texts that stand for no label; by default as in pandas, such as "nan", "NA" and "None".
    """

    fingerprint: str
    train: int = Field(ge=0)
    validation: int = Field(0, ge=0)
    test: int = Field(0, ge=0)
    missing: tuple[str, ...] | None = None

    _rows: SplitRows | None = PrivateAttr(None)

    def model_post_init(self, context: object) -> None:
        self._rows = _known.get(self.fingerprint)

    @classmethod
    def of(cls, rows: object, validation: object = None, *, columns: Mapping[str, str] | None = None) -> Memory:
        """Make a source of rows.

        rows:       a list of dictionaries, tuples or texts, a pandas or polars data frame, a `datasets.Dataset`, or a
                    dictionary of these by split (`DatasetDict`).
        validation: the rows of the validation split, in any of these forms.
        columns:    the column of each field of an example, such as `{"source": "de", "target": "en"}`; the fields of tuples,
                    in order, are its keys. Dotted if nested: `translation.de`. By default, columns have the names of fields.

        Raises ValueError if the rows have another form, or none.
        """
        splits = _splits(rows)
        if validation is not None and "validation" in splits:
            raise ValueError("validation rows are given twice, as validation= and within the rows; give them once")
        if validation is not None:
            splits["validation"] = records(validation)
        held = SplitRows(splits, dict(columns or {}))
        known = _known.setdefault(held.fingerprint, held)
        return cls(fingerprint=known.fingerprint, **{split: len(part) for split, part in splits.items()})

    @property
    def first(self) -> Example | Skipped:
        """The first training example that is not skipped, see `first_of`."""
        return self.first_of("train")

    def first_of(self, split: Split) -> Example | Skipped:
        """Return the first example of a split that is not skipped, among the first 1,000. If there is none, return why the
        first one is skipped."""
        table = self.open(split)
        entries = (table[i] for i in range(min(len(table), _INSPECTED)))
        first = next((entry for entry in entries if isinstance(entry, dict)), table[0])
        assert first is not None
        return first

    @property
    def compared(self) -> bool:
        first = self.first
        return isinstance(first, dict) and bool({*TEXTS} & first.keys())

    def gives(self, split: Split) -> bool:
        return getattr(self, split) > 0

    def open(self, split: Split) -> Table:
        rows = self._held()
        return ComputedTable(getattr(self, split), lambda i: rows.example(split, i, self.missing))

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        return row_hold_out_key(example) or super().hold_out_key(table, i, example)

    def stamp(self) -> tuple[Hashable, ...]:
        return "the rows passed from Python", self.fingerprint

    def _held(self) -> SplitRows:
        if self._rows is None:
            self._rows = _known.get(self.fingerprint)
        if self._rows is None:
            raise ValueError(
                f"the data of this run ({counted(self.train, 'training row')}, fingerprint {self.fingerprint[:8]}) were "
                "passed from Python and are not stored in it; pass the same rows again (qkv.train(RECIPE, RUN, data=rows, "
                "resume=True)), or name files with data.kind and data.path"
            )
        return self._rows


class SplitRows:
    """Rows by split, and the examples that they become. `columns` maps fields of the examples to columns of the rows."""

    def __init__(self, splits: Mapping[Split, Sequence[Any]], columns: dict[str, str]) -> None:
        if not len(splits.get("train", ())):
            raise ValueError("there are no training rows; give at least one example, or more to learn from")
        self._splits, self._columns = splits, columns
        self._readers = {split: RowReader(columns, _class_names(rows, columns)) for split, rows in splits.items()}
        digest = hashlib.sha256()
        for split, rows in splits.items():
            digest.update(f"{split} {len(rows)}\0".encode())
            for i in range(len(rows)):
                digest.update(_bytes_of(self.example(split, i)) + b"\0")
        self.fingerprint = digest.hexdigest()

    def example(self, split: Split, i: int, missing: tuple[str, ...] | None = ()) -> Example | Skipped:
        where = f"row {i}" if split == "train" else f"row {i} of the {split} rows"
        reader = replace(self._readers[split], missing=missing)
        return reader.example(self._record(self._splits[split][i], where), where)

    def _record(self, row: Any, where: str) -> dict[str, Any]:
        if isinstance(row, Mapping):
            return {str(name): value for name, value in row.items()}
        if isinstance(row, str):
            return {"text": row}
        names = list(self._columns) or ["source", "target"]
        if not isinstance(row, tuple | list):
            raise ValueError(f"{where} is a {type(row).__name__}; rows are dictionaries, tuples or texts")
        if len(row) != len(names):
            raise ValueError(f"{where} has {counted(len(row), 'value')}, and the fields are {', '.join(names)}")
        return dict(zip((self._columns.get(name, name) for name in names), row, strict=True))


_known: WeakValueDictionary[str, SplitRows] = WeakValueDictionary()
"""The rows in use in this process, by their fingerprint, so a recipe read from a run directory finds its data."""


def _splits(rows: Any) -> dict[Split, Sequence[Any]]:
    """Return the rows of each split; a data set without splits is the training split."""
    if not isinstance(rows, Mapping):
        return {"train": records(rows)}
    unknown = [name for name in rows if name not in SPLIT_NAMES]
    if unknown or "train" not in rows:
        raise ValueError(
            f"a dictionary of rows has the keys train, validation and test, not {', '.join(map(str, rows))}"
        )
    for split in SPLITS:
        if len(same := [name for name in rows if SPLIT_NAMES[name] == split]) > 1:
            raise ValueError(f"the rows under {' and '.join(map(str, same))} are all of the {split} split; join them")
    return {SPLIT_NAMES[name]: records(part) for name, part in rows.items()}


def records(rows: Any) -> Sequence[Any]:
    """Rows by index: of a polars or pandas data frame as dictionaries; lists and data sets as they are."""
    if hasattr(rows, "to_dicts"):
        records: Sequence[Any] = rows.to_dicts()
        return records
    if hasattr(rows, "iloc") and hasattr(rows, "to_dict"):
        names = [str(name) for name in getattr(rows, "columns", ())]
        if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
            raise ValueError(f"the data frame has {names.count(twice)} columns {brief(twice)}; rename one")
        return rows.to_dict("records") if hasattr(rows, "columns") else list(rows)  # a Series is a list of texts
    if hasattr(rows, "__len__") and hasattr(rows, "__getitem__") and not isinstance(rows, str | bytes | Mapping):
        return as_files(rows)
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes | Mapping) and not hasattr(rows, "n_shards"):
        return list(rows)
    raise ValueError(
        f"data are a list, a data frame, a dataset with random access, a path, or a source, not {type(rows).__name__}"
    )


def _class_names(rows: Any, columns: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """The names of classes by column, which a `datasets.Dataset` keeps apart from their numbers."""
    features = getattr(rows, "features", None)
    return {} if features is None else class_names_of(features.to_dict(), columns.values() or features)


def _bytes_of(example: Example | Skipped) -> bytes:
    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return [str(value.dtype), value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()]
        if isinstance(value, np.generic):
            return value.item()
        return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else repr(value)

    return json.dumps(example, default=plain, sort_keys=True).encode("utf-8", "surrogatepass")
