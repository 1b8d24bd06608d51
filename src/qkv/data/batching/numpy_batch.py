"""A batch in arrays, which travel between processes more cheaply than tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils import _pytree

from ...core.batch import IGNORE, Batch
from ...core.layout import Layout
from ...layers.patches import Grid, masked_layout
from ..source import Example

Array = NDArray[Any]
LAYOUTS = {"ids": "layout", "target": "target_layout"}  # the argument of a model that says where an input's tokens are


class LayoutArrays(Protocol):
    """What says where the tokens of a batch's rows are."""

    def layout(self, width: int) -> Layout: ...


@dataclass(frozen=True)
class PaddedLayout:
    """Rows of so many tokens, padded on the right, and what is isolated in them where `documents` says so.

    roles: (B, T) of `core.layout.Role`, where tokens have some.
    global_tokens: of each row so many first tokens are global: they see all and are seen by all, where the model has such.
    """

    lengths: list[int]
    documents: tuple[tuple[int, ...], ...] = ()
    roles: Array | None = None
    global_tokens: tuple[int, ...] = ()

    def layout(self, width: int) -> Layout:
        packed = bool(self.documents)
        made = Layout.packed(self.documents, width) if packed else Layout.from_lengths(self.lengths, width)
        made = made if self.roles is None else made.with_roles(torch.from_numpy(self.roles))
        if not any(self.global_tokens):
            return made
        return made.with_global(torch.arange(width) < torch.tensor(self.global_tokens)[:, None])


@dataclass(frozen=True)
class MaskedPatchLayout:
    """Images of which a share of the patches is hidden: in each row those with the most `noise` (B, N)."""

    grid: Grid
    noise: Array
    masked: float

    def layout(self, width: int) -> Layout:
        return masked_layout(self.grid, torch.from_numpy(self.noise), self.masked)


@dataclass(frozen=True)
class NumpyBatch:
    """A `Batch` before it is one.

    arrays:  what the model reads, by the names of its arguments: `ids`, `target`, `token_types` …, (B, …).
    placed:  where the tokens of `ids` and `target` are, where they are not simply there.
    labels, targets, counts, tokens, slots, texts: as in `Batch`.
    """

    arrays: dict[str, Array]
    placed: dict[str, LayoutArrays]
    labels: Array | None = None
    targets: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    slots: int = 0
    texts: tuple[Example, ...] = ()

    def batch(self, position: dict[str, Any]) -> Batch:
        inputs: dict[str, Any] = {name: torch.from_numpy(array) for name, array in self.arrays.items()}
        for name, placed in self.placed.items():
            inputs[LAYOUTS[name]] = placed.layout(inputs[name].shape[1])
        return Batch(
            inputs,
            labels=None if self.labels is None else torch.from_numpy(self.labels),
            targets=_pytree.tree_map_only(np.ndarray, torch.from_numpy, self.targets),
            counts=self.counts,
            tokens=self.tokens,
            slots=self.slots,
            position=position,
            texts=self.texts,
        )


def count_labels(labels: Array) -> int:
    """How many labels a loss counts: whole numbers that are not −100, all where they are of another kind."""
    return int((labels != IGNORE).sum()) if np.issubdtype(labels.dtype, np.integer) else labels.size
