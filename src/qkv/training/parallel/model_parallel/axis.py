"""`TokenAxis`: tokens divided over the ranks of one axis of the mesh."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ....core.layout import Layout
from ....core.ranks import Ranks
from .. import collectives
from ..world import World
from .ring import Order, RingProblem, RingSchedule


class TokenAxis:
    """Tokens of a layout divided over the ranks of one axis of the mesh. All methods take tensors (…, B, T, M)."""

    def __init__(self, layout: Layout, ranks: Ranks, order: Order) -> None:
        self.ranks, self.whole = ranks, layout
        self.schedule = RingSchedule(layout.positions.shape[1], ranks.size, order)
        self.problems: dict[tuple[Any, ...], RingProblem] = {}  # of ring attention, for layers that have the same
        self.layout = layout if ranks.size == 1 else self.schedule.layout(layout, ranks.rank)

    def own(self, x: Tensor) -> Tensor:
        """This rank's tokens of all."""
        return x if self.ranks.size == 1 else self.schedule.shard(x, self.ranks.rank, x.ndim - 2)

    def gather(self, x: Tensor) -> Tensor:
        """The tokens of all ranks, in order."""
        if not isinstance(self.ranks, World):
            return x
        every = collectives.gather(x, self.ranks, x.ndim - 2)
        return self.schedule.join(every.chunk(self.ranks.size, -2), x.ndim - 2)

    def sum_and_scatter(self, x: Tensor) -> Tensor:
        """This rank's tokens of the sum over ranks."""
        if not isinstance(self.ranks, World):
            return x
        parts = torch.cat([self.schedule.shard(x, rank, x.ndim - 2) for rank in range(self.ranks.size)], -2)
        return collectives.sum_and_scatter(parts, self.ranks, x.ndim - 2)
