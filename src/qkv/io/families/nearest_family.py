"""Find the family whose tensors are most similar to the tensors of a directory with an unknown model type."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...core.spec import brief
from ...nn.models.build import build
from ..hub.family import Family
from ..hub.files import open_weights
from ..hub.keys import BOOKKEEPING
from ..hub.names import Names, Row
from ..hub.transforms import Shape
from . import FAMILIES

TRIED = 4  # families whose shapes are compared: those with the most names in common
LEAST = 0.5  # of the file's tensors


def advice(config: Mapping[str, Any], folder: Path) -> str:
    """A sentence that names the family with which the weights of a directory have most names and shapes in common.

    "" if none has half of them.
    """
    try:
        shapes = open_weights(folder).shapes
    except (ValueError, OSError):
        return ""
    names = {re.sub(r"\d+", "0", name) for name in shapes}  # of one layer
    candidates = [one for family in FAMILIES.values() for one in _named_alike(family, config, names)]
    candidates.sort(key=lambda one: -one[0])
    count, family, spec = 0, None, None
    for _, other, table, made in candidates[:TRIED]:
        if (equal := _equal(table, made, shapes)) > count:
            count, family, spec = equal, other, made
        if count == len(shapes):
            break  # no other has more; building a deep model for its shapes takes half a second
    if family is None or not shapes or count < LEAST * len(shapes):
        return ""
    known = {*family.claimed, *family.harmless, *family.labels.keys, *BOOKKEEPING}
    unknown = [brief(key) for key in config if key not in known]
    cls = next(name for name in family.classes if _same(family, config, name, spec))
    keys = f", and remove {', '.join(unknown[:4])}, which {family.model_type} doesn't know" if unknown else ""
    return (
        f". Of its {len(shapes)} tensors, {count} have the names and shapes of {family.model_type}'s; if it computes the "
        f'same, put "model_type": "{family.model_type}" and "architectures": ["{cls}"] into its config.json{keys}'
    )


def _same(family: Family[Any], config: Mapping[str, Any], cls: str, spec: Any) -> bool:
    try:
        return bool(family.spec(_known(family, config), cls) == spec)
    except ValueError:
        return False


def _known(family: Family[Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a configuration that a family claims."""
    return {key: value for key, value in config.items() if key in family.claimed or key in family.labels.keys}


def _named_alike(
    family: Family[Any], config: Mapping[str, Any], names: Collection[str]
) -> Iterator[tuple[int, Family[Any], tuple[Row, ...], Any]]:
    """Classes of a family, the first with and without the prefix, with the number of names that are in their tables."""
    first = {cls.bare: name for name, cls in reversed([*family.classes.items()])}
    for bare, name in first.items():
        try:
            spec = family.spec(_known(family, config), name)
            table = tuple(family.table(spec, bare))
        except (ValueError, TypeError, ZeroDivisionError):
            continue
        yield sum(any(row.names(tensor) for row in table) for tensor in names), family, table, spec


def _equal(table: tuple[Row, ...], spec: Any, shapes: Mapping[str, Shape]) -> int:
    """How many tensors have the names and shapes of a model's."""
    try:
        entries = Names.of(table, build(spec, device="meta")).entries
    except ValueError:
        return 0
    wanted = {name: shape for entry in entries for name, shape in zip(entry.theirs, entry.their_shapes, strict=True)}
    return sum(wanted.get(name) == shape for name, shape in shapes.items())
