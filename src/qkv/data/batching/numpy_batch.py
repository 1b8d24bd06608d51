"""Batches as NumPy arrays, which are cheaper to send between processes than tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils import _pytree

from ...core.batch import IGNORE, Batch
from ...core.layout import Layout
from ...nn.layers.patches import Grid, masked_layout
from ..source import Example

Array = NDArray[Any]
LAYOUTS = {"ids": "layout", "target": "target_layout"}  # the model argument with the layout of each input


class LayoutArrays(Protocol):
    """Arrays from which the `Layout` of a batch is built."""

    def layout(self, width: int) -> Layout: ...


@dataclass(frozen=True)
class PaddedLayout:
    """The layout of right-padded rows; packed rows list the lengths of their `documents`, which are isolated.

    roles: (B, T) of `core.layout.Role`, if tokens have roles.
    global_tokens: how many first tokens of each row are global: they attend to all tokens, and all attend to them.
    """

    lengths: list[int]
    documents: tuple[tuple[int, ...], ...] = ()
    roles: Array | None = None
    global_tokens: tuple[int, ...] = ()

    def layout(self, width: int) -> Layout:
        packed = bool(self.documents)
        layout = Layout.packed(self.documents, width) if packed else Layout.from_lengths(self.lengths, width)
        layout = layout if self.roles is None else layout.with_roles(torch.from_numpy(self.roles))
        if not any(self.global_tokens):
            return layout
        return layout.with_global(torch.arange(width) < torch.tensor(self.global_tokens)[:, None])


@dataclass(frozen=True)
class MaskedPatchLayout:
    """The layout of images with a share of their patches masked: in each row the patches with the highest `noise` (B,
    N)."""

    grid: Grid
    noise: Array
    masked: float

    def layout(self, width: int) -> Layout:
        return masked_layout(self.grid, torch.from_numpy(self.noise), self.masked)


@dataclass(frozen=True)
class NumpyBatch:
    """A `Batch` of NumPy arrays.

    arrays:  the model inputs by argument name: `ids`, `target`, `token_types` …, (B, …).
    placed:  the layouts of `ids` and `target`, if they have one.
    media:   media of all rows one after the other, by name: (N, …), or a list if their sizes differ.
    labels, targets, counts, tokens, slots, texts, idle, first_row: as in `Batch`.
    """

    arrays: dict[str, Array]
    placed: dict[str, LayoutArrays]
    labels: Array | None = None
    targets: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    slots: int = 0
    texts: tuple[Example, ...] = ()
    idle: bool = False
    media: dict[str, Array | list[Array]] = field(default_factory=dict)
    first_row: int = 0

    def batch(self, position: dict[str, Any]) -> Batch:
        inputs: dict[str, Any] = {name: torch.from_numpy(array) for name, array in self.arrays.items()}
        for name, placed in self.placed.items():
            inputs[LAYOUTS[name]] = placed.layout(inputs[name].shape[1])
        if self.media:
            inputs["media"] = _pytree.tree_map_only(np.ndarray, torch.from_numpy, self.media)
        return Batch(
            inputs,
            labels=None if self.labels is None else torch.from_numpy(self.labels),
            targets=_pytree.tree_map_only(np.ndarray, torch.from_numpy, self.targets),
            counts=self.counts,
            tokens=self.tokens,
            slots=self.slots,
            position=position,
            texts=self.texts,
            idle=self.idle,
            first_row=self.first_row,
        )


def count_labels(labels: Array) -> int:
    """How many labels a loss counts: integers other than −100, or all labels of another type."""
    return int((labels != IGNORE).sum()) if np.issubdtype(labels.dtype, np.integer) else labels.size
