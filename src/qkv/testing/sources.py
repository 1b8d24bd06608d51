"""Checks of data sources: the same entries for the same seed, read in any order, and no example in two splits."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable

from ..data.source import SPLITS, Skipped, Source, Split, Table
from .digest import digest
from .report import NotChecked

MOST = 64  # entries of each split that are read
SEED, EPOCH = 3, 1


def source_checks(source: Source) -> dict[str, Callable[[], None]]:
    try:
        source.table("train", seed=SEED, epoch=EPOCH)
    except ValueError:  # no data are there to read: one failure says so
        return {"entries": lambda: check_entries(source)}
    return {
        "entries": lambda: check_entries(source),
        "same seed, same entries": lambda: check_same_seed(source),
        "read in any order": lambda: check_any_order(source),
        "worker processes": lambda: check_workers(source),
        "no row twice": lambda: check_rows(source),
        "splits apart": lambda: check_splits(source),
    }


def _open(source: Source, split: Split) -> Table | None:
    """The table of a split, or None for an evaluation split that the source does not have."""
    try:
        return source.table(split, seed=SEED, epoch=EPOCH)
    except ValueError:
        if split == "train":
            raise
        return None


def _entries(table: Table, places: Iterable[int] | None = None) -> dict[int, object]:
    """The first entries of a table, read in the order of `places`."""
    places = range(min(len(table), MOST)) if places is None else places
    return {i: table[i] for i in places}


def _digests(source: Source, split: Split, places: Iterable[int] | None = None) -> dict[int, str]:
    table = _open(source, split)
    return {} if table is None else {i: digest(entry) for i, entry in _entries(table, places).items()}


def check_entries(source: Source) -> None:
    """Each entry is an example, a reason to skip it, or None; some training entry is an example."""
    for split in SPLITS:
        table = _open(source, split)
        if table is None:
            continue
        entries = _entries(table)
        for i, entry in entries.items():
            right = entry is None or isinstance(entry, dict | Skipped)
            assert right, (
                f"entry {i} of {split} is of type {type(entry).__name__}; it has to be a dict, Skipped or None"
            )
            names = [name for name in entry if not isinstance(name, str)] if isinstance(entry, dict) else []
            assert not names, f"entry {i} of {split} has a field named {names[:1]!r}; names are strings"
        if split == "train":
            assert any(isinstance(entry, dict) for entry in entries.values()), "the split train has no example"


def check_same_seed(source: Source) -> None:
    """A split opened again with the same seed and epoch has the same entries."""
    for split in SPLITS:
        once, again = _digests(source, split), _digests(source, split)
        changed = [i for i in once.keys() | again.keys() if once.get(i) != again.get(i)]
        assert not changed, (
            f"entry {min(changed)} of {split} differs when the split is opened again with the same seed and epoch; "
            "draw from a generator that is made of split, seed and epoch"
        )


def check_any_order(source: Source) -> None:
    """An entry does not depend on which entries were read before it, so a run can be resumed anywhere."""
    table = _open(source, "train")
    assert table is not None
    if getattr(table, "sequential", False):
        raise NotChecked("the table is sequential and only read in order")
    forward = _digests(source, "train")
    backward = _digests(source, "train", sorted(forward, reverse=True))
    changed = [i for i in forward if forward[i] != backward[i]]
    assert not changed, (
        f"entry {min(changed)} of train depends on which entries were read before it, so a resumed run would read "
        "other examples"
    )


def check_workers(source: Source) -> None:
    """A copy sent to a worker process reads the same entries."""
    try:
        copied = pickle.loads(pickle.dumps(source))
    except Exception as error:
        raise AssertionError(f"it can't be sent to a worker process: {error}") from None
    assert _digests(source, "train") == _digests(copied, "train"), "a copy sent to a worker process has other entries"


def check_rows(source: Source) -> None:
    """No row of the data is in a table twice. Rows are told apart by `where`; the pieces of a document share it."""
    compared = 0
    for split in SPLITS:
        table = _open(source, split)
        if table is None:
            continue
        rows: dict[str, int] = {}
        for i, entry in _entries(table).items():
            if not isinstance(entry, dict) or "where" not in entry:
                continue
            compared += 1
            first = rows.setdefault(digest(entry), i)
            assert first == i, f"entries {first} and {i} of {split} are both the row {entry['where']}"
    if not compared:
        raise NotChecked("examples don't have the field `where`, which names their row")


def check_splits(source: Source) -> None:
    """No example of one split is in another."""
    splits: dict[str, Split] = {}
    for split in SPLITS:
        table = _open(source, split)
        examples = {} if table is None else _entries(table)
        for i, entry in examples.items():
            if not isinstance(entry, dict):
                continue
            content = digest({name: value for name, value in entry.items() if name != "where"})
            other = splits.setdefault(content, split)
            assert other == split, f"entry {i} of {split} is also in {other}; an evaluation would reward memory"
