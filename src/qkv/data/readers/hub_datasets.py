"""Hugging Face datasets from the Hub or from disk, through the `datasets` library."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from ...core.optional_libraries import optional_library
from ...core.spec import Spec, brief, nearest
from ..source import Example, Skipped, Split, Table, names_of
from ..tables import StreamTable
from .rows import RowSource, RowTable, as_files


class Splits(Spec):
    """The names of the splits in a dataset, or slices of them such as `train[:90%]`.

    By default, their own names, or other usual ones such as `valid`, `val`, `dev` and `eval`.
    """

    train: str | None = None
    validation: str | None = None
    test: str | None = None


class Datasets(RowSource, kind="datasets"):
    """A dataset by its Hub name, a folder written by `save_to_disk`, or a folder of Parquet, CSV or JSONL files.

    name:      the configuration, if the dataset has several; `revision` is a branch, tag or commit on the Hub.
    text, label, source, target …: the columns, see `RowSource`.
    splits:    the names of the splits in the dataset. A missing split is held out of its training split by hash.
    streaming: read in the order of the dataset without downloading all of it first. Only the examples of a pool are
               shuffled, nothing can be held out, and resuming continues where it stopped (with `datasets` from version 3
               on; earlier ones read from the start up to there).

    Pictures, sounds and videos are decoded by qkv, so damaged ones are skipped and counted. The library's own settings
    apply: its cache, its tokens, `HF_HUB_OFFLINE=1`. Raises ValueError if it is missing.
    """

    on_hub: ClassVar[bool] = True

    path: str | None = None
    name: str | None = None
    revision: str | None = None
    splits: Splits = Splits()
    streaming: bool = False

    @property
    def fixed(self) -> bool:
        return not self.streaming

    def gives(self, split: Split) -> bool:
        exists = self._called(split) is not None
        if not exists and self.streaming:
            raise ValueError(
                f"{self.path} has no {split} split, and none can be held out of a stream; name one as splits.{split}, "
                "or leave out streaming"
            )
        return exists

    def open(self, split: Split) -> Table:
        called = self._called(split)
        if called is None:
            raise ValueError(
                f"{self.path} has no {split} split; name one as splits.{split}: {', '.join(_opened(self))}"
            )
        data = as_files(part_of(self, called))
        where = f"{self.path}, {called}"
        features = getattr(data, "features", None)
        existing = list(next(iter(data), {})) if data.column_names is None else data.column_names
        reader = self.reader(existing, features.to_dict() if features else None, self.path, self._folders)
        if self.streaming:
            rows = _Rows(data, lambda row, i: reader.example(row, f"{where}, row {i + 1:,}"))
            return StreamTable(rows.open, rows.save, rows.load)
        label = reader.columns.get("label")
        labels = data[label] if label in existing and "image" in reader.columns else None
        return RowTable(data.select_columns(list(reader.tops)), reader, where, labels)

    def stamp(self) -> tuple[Hashable, ...]:
        data = part_of(self, self._called("train") or "train")
        return self.path, len(data), getattr(data, "_fingerprint", None)

    @property
    def _folders(self) -> tuple[Path, ...]:
        """The folders of the files that rows name: the dataset's own, and the caches of the library."""
        own, config = Path(self.path or "").expanduser(), getattr(_library(self.path), "config", None)
        caches = [getattr(config, name, None) for name in ("HF_CACHE_HOME", "HF_DATASETS_CACHE", "HF_HUB_CACHE")]
        return (own, *(Path(cache).expanduser() for cache in caches if cache))

    def _called(self, split: Split) -> str | None:
        """The name of a split in the dataset; None if it has no such split."""
        name = getattr(self.splits, split)
        if name is not None:
            return name
        return next((name for name in names_of(split) if name in _opened(self)), None)


class _Rows:
    """The rows of a streamed dataset, from its start or from a saved state."""

    def __init__(self, data: Any, example: Callable[[Any, int], Example | Skipped]) -> None:
        self._data, self._example, self._reading = data, example, data

    def open(self) -> Iterator[Example | Skipped]:
        return self._rows(self._own(), 0)

    def load(self, entry: int, state: Any) -> Iterator[Example | Skipped]:
        data = self._own()
        data.load_state_dict(state)
        return self._rows(data, entry)

    def save(self) -> Any:
        return self._reading.state_dict() if hasattr(self._reading, "state_dict") else None

    def _own(self) -> Any:
        """The dataset with its own state; `copy` would share it with other readers."""
        return self._data.with_format(None) if hasattr(self._data, "with_format") else self._data

    def _rows(self, data: Any, start: int) -> Iterator[Example | Skipped]:
        self._reading = data
        return (self._example(row, i) for i, row in enumerate(data, start))


@lru_cache(maxsize=8)
def _opened(spec: Datasets) -> Mapping[str, Any]:
    """All splits of a dataset, by their names in it."""
    if spec.path is None:
        raise ValueError("no training data: give data.path, the name of a dataset or a folder with one")
    if not _saved(spec):
        return _load(spec)
    library = _library(spec.path)
    with _one_sentence_errors(spec.path):
        saved = library.load_from_disk(str(Path(spec.path).expanduser()))
        splits = saved if isinstance(saved, Mapping) else {"train": saved}
        return {name: data.to_iterable_dataset() for name, data in splits.items()} if spec.streaming else splits


@lru_cache(maxsize=16)
def part_of(spec: Datasets, called: str) -> Any:
    """One split, or a part of one."""
    splits = _opened(spec)
    if called in splits:
        return splits[called]
    if "[" not in called or spec.streaming or _saved(spec):
        raise ValueError(f"{spec.path} has no split {brief(called)}; {nearest(called, splits)}")
    return _load(spec, called)


def _saved(spec: Datasets) -> bool:
    """Whether the path was written by `save_to_disk`."""
    path = Path(spec.path or "").expanduser()
    return (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()


def _load(spec: Datasets, called: str | None = None) -> Any:
    library = _library(spec.path)
    with _one_sentence_errors(spec.path):
        return library.load_dataset(
            spec.path, spec.name, split=called, revision=spec.revision, streaming=spec.streaming
        )


def _library(path: str | None) -> ModuleType:
    return optional_library(f"reading the dataset {brief(path)}", "datasets")


@contextlib.contextmanager
def _one_sentence_errors(path: str | None) -> Iterator[None]:
    """Turn the library's errors into a ValueError of one sentence."""
    try:
        yield
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"the library datasets can't open {brief(path)}: {reason}") from error
