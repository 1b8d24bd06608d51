"""H2O, the heavy-hitter oracle (Zhang et al. 2023): keep the newest tokens and the tokens with the most attention so
far."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from .eviction import EvictingSlotTable, EvictingState, Weights


class H2OState(EvictingState):
    """Keys, values, and the attention that each has received from all later queries ("attention received")."""

    RECEIVED = "attention received"

    def __init__(self, slot_table: EvictingSlotTable, recent: int) -> None:
        super().__init__(slot_table)
        self.recent = recent

    def append(self, k: Float[Tensor, "B T K D"], v: Float[Tensor, "B T K E"]) -> tuple[Tensor, Tensor]:
        self._put(self.RECEIVED, k.new_zeros(k.shape[0], k.shape[2], k.shape[1], 1).float())
        return super().append(k, v)

    def value(self, weights: Weights) -> Float[Tensor, "B K S"]:
        total = self._used(self.RECEIVED)
        total += self.received(weights, range(self.slot_table.step.count))[..., None]
        value = total[..., 0].clone()
        value[..., max(0, self._count - self.recent) :] = float("inf")
        return value
