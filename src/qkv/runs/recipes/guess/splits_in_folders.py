"""Guess a recipe for the files below a folder, which may have a file or a folder for each split."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from ....core.spec import counted
from ....data.source import SPLIT_NAMES, SPLITS, placed_split
from .result import Guess, setting

_MOST = 20  # files that a setting lists


def of_splits(
    recipe: str,
    settings: tuple[str, ...],
    place: Path,
    names: Sequence[PurePosixPath],
    what: str,
    seen: tuple[str, ...],
) -> Guess | str:
    """Guess a recipe for the files `names` below a folder, divided into splits if their names or folders name splits. Return
    what was seen if settings can't express these splits."""
    splits = _by_split(place, names, what, several=recipe == "lm")
    if isinstance(splits, str):
        return f"{seen[0]}; {splits}"
    paths, said = splits or ((setting("data.path", place),), ())
    first = sum(one.startswith("data.kind=") for one in settings)
    return Guess(recipe, (*settings[:first], *paths, *settings[first:]), (*seen, *said))


def _by_split(
    place: Path, names: Sequence[PurePosixPath], what: str, several: bool
) -> tuple[tuple[str, ...], tuple[str, ...]] | str | None:
    """Return the settings of the paths of each split, and what to say about them. Return None if the names tell no splits,
    and a sentence if settings can't give these splits. `several`: whether a setting may list paths."""
    found = {split: [name for name in names if placed_split(name) == split] for split in SPLITS}
    if not found["train"] or not (found["validation"] or found["test"]):
        return None
    settings, seen = list[str](), list[str]()
    for split, files in found.items():
        paths = list(dict.fromkeys(map(_folder_or_file, files)))
        if len(paths) > (_MOST if several else 1):
            return (
                f"{counted(len(paths), what)} are for {split} by their names ({paths[0]}, {paths[1]} …); put the files of "
                "each split into one folder, such as train, validation and test"
            )
        if paths:
            prefix = "" if split == "train" else f"{split}_"
            given = [str(place / path) for path in paths]
            settings.append(setting(f"data.{prefix}path", given if len(given) > 1 else given[0]))
            seen.append(f"{', '.join(map(str, paths))}: {counted(len(files), what)} for {split}")
    if others := [name for name in names if placed_split(name) is None]:
        listed = ", ".join(map(str, others[:3])) + (" …" if others[3:] else "")
        seen.append(f"{counted(len(others), 'other ' + what)} of no split by name or folder, not read: {listed}")
    return tuple(settings), tuple(seen)


def _folder_or_file(name: PurePosixPath) -> PurePosixPath:
    """The folder of a split that a file is in, or the file."""
    at = next((i for i, part in enumerate(name.parts[:-1], 1) if part.lower() in SPLIT_NAMES), None)
    return name if at is None else PurePosixPath(*name.parts[:at])
