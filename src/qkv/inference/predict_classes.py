"""The classes of texts, pictures and sounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..tasks.prediction import Prediction
from .classify import Classified, classify
from .classify_files import classify_files

if TYPE_CHECKING:
    from .loaded import LoadedModel

_MOST = 5  # classes in a line


def texts_classified(run: LoadedModel, lines: Sequence[str]) -> list[Prediction]:
    """A `Classified` for each text, or for each pair of texts with a tab between."""
    return _predictions(lines, classify(run, *sides(lines)))


def files_classified(run: LoadedModel, paths: Sequence[str]) -> list[Prediction]:
    """A `Classified` for each file of a picture or a sound."""
    return _predictions(paths, classify_files(run, paths))


def sides(lines: Sequence[str]) -> tuple[Sequence[str], list[str] | None]:
    """Texts, and what stands beside each where it is a pair. Raises ValueError where only some are pairs."""
    split = [line.split("\t") for line in lines]
    widths = {len(parts) for parts in split}
    if widths == {1}:
        return lines, None
    if widths != {2}:
        raise ValueError("give texts, or TEXT<tab>TEXT for every one of them")
    return [parts[0] for parts in split], [parts[1] for parts in split]


def likeliest(found: Classified) -> str:
    """The likeliest classes in a line, each with its probability."""
    return "  ".join(f"{name} {share:.3f}" for name, share in list(found.probabilities.items())[:_MOST])


def _predictions(inputs: Sequence[str], found: Sequence[Classified]) -> list[Prediction]:
    return [
        Prediction(given, one, f"{likeliest(one)}\t{given}", vars(one))
        for given, one in zip(inputs, found, strict=True)
    ]
