"""Hugging Face datasets from the Hub or from disk, through the `datasets` library."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Hashable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from pydantic import model_validator

from ...core.spec import Spec, nearest
from ..files.json_lines import json_field
from ..holdout import HoldOutSource
from ..source import Example, Skipped, Split, Table
from ..tables import StreamTable
from .parallel_text import pair

_OTHER_NAMES: dict[Split, tuple[str, ...]] = {"train": (), "validation": ("valid", "val", "dev"), "test": ()}


class Splits(Spec):
    """The names of the splits in a dataset, or slices of them such as `train[:90%]`.

    By default, their own names (for validation also `valid`, `val` or `dev`).
    """

    train: str | None = None
    validation: str | None = None
    test: str | None = None


class Datasets(HoldOutSource, kind="datasets"):
    """A data set by its Hub name, by a folder that `save_to_disk` made, or by a folder of Parquet, CSV or JSONL files.

    name:      of its configuration, where it has several; `revision` a branch, tag or commit of the Hub.
    source, target: the columns of pairs; `text`, the column of running text. Dotted where nested: `translation.en`.
    splits:    what they are called there. One that it doesn't have is held out of its training split by hash.
    streaming: read on in the order of the data set without loading it first. Only the examples of a pool are shuffled,
               nothing can be held out, and resuming reads up to where it was.

    The library's own settings hold: its cache, its tokens, `HF_HUB_OFFLINE=1`. Raises ValueError where it is missing.
    """

    path: str | None = None
    name: str | None = None
    revision: str | None = None
    splits: Splits = Splits()
    source: str | None = None
    target: str | None = None
    text: str | None = None
    streaming: bool = False

    @model_validator(mode="after")
    def _columns(self) -> Self:
        if (self.source is None) != (self.target is None):
            raise ValueError("source and target, two columns, are given together, or neither")
        if self.source is not None and self.text is not None:
            raise ValueError("give the columns source and target, or the column text, not both")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return (self.text or "text",) if self.source is None or self.target is None else (self.source, self.target)

    @property
    def fixed(self) -> bool:
        return not self.streaming

    def gives(self, split: Split) -> bool:
        found = self._called(split) is not None
        if not found and self.streaming:
            raise ValueError(
                f"{self.path} has no {split} split, and none can be held out of a stream; name one as splits.{split}, "
                "or leave out streaming"
            )
        return found

    def open(self, split: Split) -> Table:
        called = self._called(split)
        if called is None:
            raise ValueError(
                f"{self.path} has no {split} split; name one as splits.{split}: {', '.join(_opened(self))}"
            )
        data = _part(self, called)
        tops = list(dict.fromkeys(column.partition(".")[0] for column in self.columns))
        for top in tops:
            if data.column_names is not None and top not in data.column_names:
                raise ValueError(f"{self.path} has no column {top!r}; {nearest(top, data.column_names)}")
        if self.streaming:
            return StreamTable(lambda: (self.example(record) for record in data))
        return _Records(data.select_columns(tops), self)

    def stamp(self) -> tuple[Hashable, ...]:
        data = _part(self, self._called("train") or "train")
        return self.path, len(data), getattr(data, "_fingerprint", None)

    def example(self, record: Mapping[str, Any]) -> Example | Skipped:
        """The example in a record, or why it is skipped."""
        found = [json_field(record, column) for column in self.columns]
        texts = [text for text in found if text is not None]
        if len(texts) < len(found):
            return Skipped(f"without a text {self.columns[found.index(None)]!r}")
        if len(texts) == 2:
            return pair(texts[0], texts[1])
        return {"text": texts[0]} if texts[0].strip() else Skipped("empty")

    def _called(self, split: Split) -> str | None:
        """The dataset's name of a split."""
        given = getattr(self.splits, split)
        if given is not None:
            return given
        return next((name for name in (split, *_OTHER_NAMES[split]) if name in _opened(self)), None)


class _Records:
    def __init__(self, data: Any, spec: Datasets) -> None:
        self._data, self._spec = data, spec

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, i: int) -> Example | Skipped:
        return self._spec.example(self._data[i])


@lru_cache(maxsize=8)
def _opened(spec: Datasets) -> Mapping[str, Any]:
    """All splits of a data set, by the names that it gives them."""
    if spec.path is None:
        raise ValueError("no training data: give data.path, the name of a data set or a folder that holds one")
    if not _saved(spec):
        return _load(spec)
    library = _library()
    with _one_sentence_errors(spec.path):
        found = library.load_from_disk(str(Path(spec.path).expanduser()))
        found = found if isinstance(found, Mapping) else {"train": found}
        return {name: data.to_iterable_dataset() for name, data in found.items()} if spec.streaming else found


@lru_cache(maxsize=16)
def _part(spec: Datasets, called: str) -> Any:
    """One split, or a part of one."""
    splits = _opened(spec)
    if called in splits:
        return splits[called]
    if "[" not in called or spec.streaming or _saved(spec):
        raise ValueError(f"{spec.path} has no split {called!r}; {nearest(called, splits)}")
    return _load(spec, called)


def _saved(spec: Datasets) -> bool:
    """Whether the path was written by `save_to_disk`."""
    path = Path(spec.path or "").expanduser()
    return (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()


def _load(spec: Datasets, called: str | None = None) -> Any:
    library = _library()
    with _one_sentence_errors(spec.path):
        return library.load_dataset(
            spec.path, spec.name, split=called, revision=spec.revision, streaming=spec.streaming
        )


def _library() -> ModuleType:
    try:
        return importlib.import_module("datasets")
    except ModuleNotFoundError:
        raise ValueError(
            "the data source datasets reads through the library of that name, which is not installed: pip install datasets"
        ) from None


@contextlib.contextmanager
def _one_sentence_errors(path: str | None) -> Iterator[None]:
    """Turn the library's errors into a ValueError of one sentence."""
    try:
        yield
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"the library datasets can't open {path!r}: {reason}") from error
