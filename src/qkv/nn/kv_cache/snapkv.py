"""SnapKV (Li et al. 2024): compress a prompt to the tokens that its last queries attend to."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from .eviction import EvictingSlotTable, EvictingState, Weights


class SnapKVState(EvictingState):
    """After a prompt, the last `window` tokens vote by their attention; votes are max-pooled over `kernel` neighbors."""

    def __init__(self, slot_table: EvictingSlotTable, window: int, kernel: int) -> None:
        super().__init__(slot_table)
        self.window, self.kernel = window, kernel

    def value(self, weights: Weights) -> Float[Tensor, "B K S"] | None:
        count = self.slot_table.step.count
        if self.slot_table.remaining >= self._count:
            return None
        votes = self.received(weights, range(max(0, count - self.window), count))
        older = max(0, self._count - self.window)
        votes[..., :older] = F.max_pool1d(votes[..., :older], self.kernel, 1, self.kernel // 2)
        votes[..., older:] = float("inf")
        return votes
