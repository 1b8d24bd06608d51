"""Caches that evict tokens by the attention they receive: what H2O and SnapKV have in common.

In each step the cache receives the attention weights (`observe`), and each key-value head keeps the tokens with the highest
values. Heads keep different tokens, so slots no longer have positions: every slot is in the past, which is all that a causal
mask needs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from ...core.layout import Layout
from .slot_table import SlotTable
from .slots import SlotState, put, select

Weights = Callable[[range], Float[Tensor, "B H R S"]]  # the attention weights of these query rows of the step

ROWS = 256  # query rows whose weights are computed together


class EvictingSlotTable(SlotTable):
    """At most `budget` slots a head after each step; with `prompts`, only after steps of several tokens."""

    def __init__(self, budget: int, prompts: bool) -> None:
        super().__init__()
        self.budget, self.prompts = budget, prompts
        self.remaining = 0  # slots that are kept after this step

    def check_admit(self, layout: Layout) -> None:
        if layout.padding not in ("none", "left") or (self.length and layout.padding != "none"):
            raise ValueError(
                "a cache that evicts by attention takes rows padded on the left, at the first step; move padding"
            )
        if not layout.one_segment:
            raise ValueError("a cache that evicts by attention holds one document a row; give each its own row")

    def admit(self, layout: Layout) -> None:
        if self._kept is not None and self.remaining < self._kept.shape[1]:
            self._kept = self._kept.slice(self._kept.shape[1] - self.remaining, self._kept.shape[1])
        super().admit(layout)
        slots, count = self.layout.shape[1], layout.shape[1]
        self.remaining = slots if self.prompts and count == 1 else min(slots, self.budget)

    def check_rewind(self, n: int) -> None:
        super().check_rewind(n)
        if n:
            raise ValueError(f"a cache that evicts by attention can't rewind {n} tokens; use a full cache for that")

    def check_hide(self) -> None:
        raise ValueError("a cache that evicts by attention can't remove tokens; use a full cache for that")

    def tensors(self) -> dict[str, Tensor]:
        return {"remaining": torch.tensor(self.remaining)}

    def restore(self, length: int, kept: Layout | None, tensors: dict[str, Tensor]) -> None:
        super().restore(length, kept, tensors)
        self.remaining = int(tensors["remaining"])


class EvictingState(SlotState[EvictingSlotTable]):
    """Keys and values of the tokens that each head of a layer keeps. Subclasses define `value`."""

    def __init__(self, slot_table: EvictingSlotTable) -> None:
        super().__init__(slot_table)
        self._buffers: dict[str, Tensor] = {}  # "k" and "v", (B, K, slots, D), and what a subclass adds to each slot
        self._count = 0

    def append(self, k: Float[Tensor, "B T K D"], v: Float[Tensor, "B T K E"]) -> tuple[Tensor, Tensor]:
        for name, new in (("k", k), ("v", v)):
            self._put(name, new.transpose(1, 2))
        self._count += k.shape[1]
        keys, values = (self._used(name).transpose(1, 2) for name in "kv")
        return keys, values

    def _put(self, name: str, new: Float[Tensor, "B K T D"]) -> None:
        self._buffers[name] = put(self._buffers.get(name), new, self._count)

    def _used(self, name: str) -> Float[Tensor, "B K S D"]:
        return self._buffers[name][:, :, : self._count]

    def observe(self, weights: Weights) -> None:
        """Receive the attention weights of the step, and evict tokens over the budget."""
        value = self.value(weights)
        keep = self.slot_table.remaining
        if value is None or keep >= self._count:
            return
        value = value.masked_fill(~self.layout.valid[:, None], -1.0)  # padding goes first
        order = value.argsort(dim=-1, descending=True, stable=True)  # stable: of equal values the earlier token stays
        slots = order[..., :keep].sort(-1).values[..., None]  # in order of time
        for name in self._buffers:
            used = self._used(name)
            self._buffers[name] = used.gather(2, slots.expand(-1, -1, -1, used.shape[3]))
        self._count = keep

    def value(self, weights: Weights) -> Float[Tensor, "B K S"] | None:
        """The value of each slot for each head, at least 0, ∞ for slots to keep; None if nothing is to be evicted."""
        raise NotImplementedError

    def received(self, weights: Weights, rows: range) -> Float[Tensor, "B K S"]:
        """The attention that each slot received from these query rows, summed over the heads that share a key."""
        total: Tensor | None = None
        for start in range(rows.start, rows.stop, ROWS):
            part = weights(range(start, min(start + ROWS, rows.stop))).sum(2)  # (B, H, S)
            total = part if total is None else total + part
        assert total is not None
        return total.unflatten(1, (self._buffers["k"].shape[1], -1)).sum(2)

    def reorder(self, rows: Tensor) -> None:
        self._buffers = {name: select(t, rows, self._count) for name, t in self._buffers.items()}

    def tensors(self) -> dict[str, Tensor]:
        return {name: self._used(name) for name in self._buffers}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self._buffers, self._count = dict(tensors), tensors["k"].shape[2] if tensors else 0

    @property
    def parts(self) -> dict[str, int]:
        sizes = {name: t.numel() * t.element_size() for name, t in self.tensors().items()}
        kv = sizes.pop("k", 0) + sizes.pop("v", 0)
        return {"keys and values": kv, **sizes}
