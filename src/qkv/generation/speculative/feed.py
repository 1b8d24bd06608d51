"""Feed rows with different numbers of tokens to a model in one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from ...core.layout import Layout
from ..model_interface import RewindableCache


class Feed(Protocol):
    """A model, or some of its layers, that continues rows."""

    @property
    def device(self) -> torch.device: ...

    @property
    def max_positions(self) -> int | None: ...

    def step(self, ids: Tensor, cache: Any, layout: Layout | None = None, all_positions: bool = False) -> Tensor: ...


def feed(
    model: Feed, cache: RewindableCache, blocks: Sequence[Sequence[int]], side: Literal["left", "right"] = "right"
) -> Tensor:
    """Feed each row its tokens, padded on one side to the longest; returns the logits of all places (B, T, V)."""
    lengths = [len(block) for block in blocks]
    width = max(lengths)
    padding = [[0] * (width - n) for n in lengths]
    padded = [[*block, *pad] if side == "right" else [*pad, *block] for block, pad in zip(blocks, padding, strict=True)]
    ids = torch.tensor(padded, dtype=torch.long, device=model.device)
    layout = None if min(lengths) == width else cache.continued(lengths, model.device, side)
    return model.step(ids, cache, layout, all_positions=True)
