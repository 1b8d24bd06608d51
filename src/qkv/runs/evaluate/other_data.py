"""Other data than a run's own in its evaluation: which part of them is evaluated."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.spec import brief
from ...data.holdout import HoldOutSource
from ...data.readers.time_series import SeriesSource
from ...data.source import Source, Split, new_notes


def check_changed(source: Source, split: Split, changes: Sequence[str]) -> None:
    """Raise ValueError if the settings of the data in `changes` name other training files, but `split` has its own files:
    these would be evaluated, whatever the training files are."""
    changed = {item.removeprefix("data.").partition("=")[0] for item in changes}
    for name in sorted(changed):
        own = f"{split}_{name}"
        value = getattr(source, own, None) if own in type(source).model_fields else None
        if own not in changed and value is not None:
            raise ValueError(
                f"the {split} split is read from data.{own}, {brief(value)}, and {name} changes the training data alone; to "
                f"evaluate another file, give {own}=FILE in place of {name}=FILE"
            )


def notes_on_other(source: Source, trained: Source, split: Split) -> list[str]:
    """Notes on a source in place of the one that a run was `trained` on: which part is evaluated, and its own notes."""
    return [*_part(source, trained, split), *new_notes(source, trained)]


def _part(source: Source, trained: Source, split: Split) -> list[str]:
    """A note if only a part of other data is evaluated."""
    if source == trained or split == "train":
        return []
    if isinstance(source, SeriesSource):
        return [
            f"Data: the last rows are evaluated, the {split} split of this series; its columns are scaled by the mean and "
            "standard deviation of its own training split, not by those of the run."
        ]
    if not isinstance(source, HoldOutSource) or source.gives(split):
        return []
    own = f"{split}_path"
    whole = f"; {own}=FILE evaluates all of a file" if own in type(source).model_fields else ""
    return [f"Data: only the part that is held out for {split} is evaluated{whole}."]
