"""The split that a name tells: of a file, a folder, a key or the rows of a dataset."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from ..core.spec import counted
from .source import SPLITS, Split

NAMES: dict[str, Split] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
"""The split of each usual name, in lower case; the same names as in the library `datasets`."""


def names_of(split: Split) -> tuple[str, ...]:
    """The usual names of a split, its own first."""
    return tuple(name for name, one in NAMES.items() if one == split)


def split_of(path: PurePath) -> Split | None:
    """The split that a word in the name of a file or folder tells."""
    words = re.split(r"[\W\d_]+", path.name.lower())
    return next((NAMES[word] for word in words if word in NAMES), None)


def placed_split(path: PurePath) -> Split | None:
    """The split that a folder on the way to a file tells by its whole name, or else the name of the file."""
    folders = (NAMES.get(part.lower()) for part in path.parts[:-1])
    return next((split for split in folders if split is not None), None) or split_of(path)


def named_otherwise(names: Sequence[PurePath]) -> Iterator[str]:
    """Yield a note if files that are all read for training have the names of several splits."""
    splits = [placed_split(name) for name in names]
    others = [name for name, split in zip(names, splits, strict=True) if split in SPLITS[1:]]
    if not others or "train" not in splits:
        return
    listed = ", ".join(map(str, others[:3])) + (" …" if others[3:] else "")
    its, one = ("its name tells", "the file") if len(others) == 1 else ("their names tell", "the files")
    are = "is" if len(others) == 1 else "are"
    yield (
        f"{counted(len(others), 'training file')} {are} of another split, as {its} ({listed}); "
        f"if so, give {one} with data.validation_path and data.test_path, and data.path=… for training alone"
    )
