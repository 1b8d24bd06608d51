"""KV cache of attention sinks and a window (StreamingLLM, Xiao et al. 2023): unlimited text in constant memory."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ...core.layout import Layout
from .slot_table import SlotTable
from .slots import SlotState, put, select


class SinkSlotTable(SlotTable):
    """The first `sinks` tokens of every row and its newest, in order. **Positions count tokens in the cache**, from 0 on.

    Before a step of T tokens, the oldest tokens after the sinks are evicted until at most `sinks` + `window` remain,
    including the new ones: a step of one token attends to these. A longer step attends to all its tokens, and to as
    many others as fit.
    """

    def __init__(self, sinks: int, window: int) -> None:
        super().__init__()
        self.sinks, self.window = sinks, window
        self.index: Tensor | None = None  # (B or 1, slots): the old slots that this step keeps; None: all
        self._padding: Tensor | None = None  # (B,) padded slots at the left of each row

    def places(self, count: int) -> int:
        return min(self.length + count, self.sinks + max(self.window, count))

    def placed(self, layout: Layout) -> Layout:
        assert self._kept is not None
        slots = self._kept.shape[1]
        return self._kept.slice(slots - layout.shape[1], slots)

    def check_admit(self, layout: Layout) -> None:
        if layout.padding not in ("none", "left") or (self.length and layout.padding != "none"):
            raise ValueError(
                "a cache of sinks and a window takes rows padded on the left, at the first step; move padding"
            )
        if layout.positions.shape[-1] > 1:
            raise ValueError(
                "a cache of sinks and a window renumbers tokens, and these have rows and columns (M-RoPE); use another cache"
            )
        if not layout.one_segment:
            raise ValueError("a cache of sinks and a window streams one document a row; give each its own row")

    def admit(self, layout: Layout) -> None:
        slots = 0 if self._kept is None else self._kept.shape[1]
        evicted = min(slots + layout.shape[1] - self.sinks - self.window, slots - self.sinks)
        self.index = self._remaining(slots, evicted) if evicted > 0 else None
        if self.index is not None and self._kept is not None:
            self._kept = _select_slots(self._kept, self.index)
        super().admit(layout)
        if layout.padding == "left":
            self._padding = (layout.positions[..., 0] < 0).sum(1)
        assert self._attended is not None
        self._attended = self._kept = self._numbered(self._attended)

    def _remaining(self, slots: int, evicted: int) -> Tensor:
        """The slots that are kept: padding is evicted first, then the tokens after the sinks."""
        assert self._kept is not None
        slot = torch.arange(slots - evicted, device=self._kept.device)[None]
        if self._padding is None:
            return torch.where(slot < self.sinks, slot, slot + evicted)
        gone = self._padding.clamp(max=evicted)[:, None]
        self._padding = self._padding - gone[:, 0]
        sink = slot < self._padding[:, None] + self.sinks
        return torch.where(sink, slot + gone, slot + evicted)

    def _numbered(self, layout: Layout) -> Layout:
        """The layout with positions counted in the cache."""
        if self._padding is None:
            full = Layout.full(layout.shape[1], device=layout.device)
            return replace(full, segments=layout.segments, roles=layout.roles)
        places = torch.arange(layout.shape[1], device=layout.device) - self._padding[:, None]
        return replace(layout, positions=places.clamp(min=-1)[..., None], padding="left", sequential=True, start=None)

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        self._padding = None if self._padding is None else self._padding.index_select(0, rows)

    def check_rewind(self, n: int) -> None:
        super().check_rewind(n)
        if n and self._kept is not None and self._kept.shape[1] < self.length:
            raise ValueError(
                f"a cache of {self.sinks} sinks and a window of {self.window} has evicted tokens and can't rewind after "
                f"{self.length}; use a full cache if tokens have to be removed"
            )

    def check_hide(self) -> None:
        raise ValueError(
            "a cache of sinks and a window numbers its slots and can't remove tokens from single rows; use a full cache"
        )

    def rewind(self, n: int) -> None:
        super().rewind(n)
        if self._padding is not None and n:
            self._padding = self._padding.clamp(max=self.length)

    def tensors(self) -> dict[str, Tensor]:
        return {} if self._padding is None else {"padding": self._padding}

    def restore(self, length: int, kept: Layout | None, tensors: dict[str, Tensor]) -> None:
        super().restore(length, kept, tensors)
        self._padding = tensors.get("padding")


def _select_slots(layout: Layout, index: Tensor) -> Layout:
    """The slots of a layout at (B or 1, slots) indices."""
    rows = max(len(index), layout.shape[0])

    def pick(t: Tensor | None) -> Tensor | None:
        if t is None:
            return None
        return t.expand(rows, *t.shape[1:])[torch.arange(rows, device=t.device)[:, None], index.expand(rows, -1)]

    return replace(
        layout,
        positions=layout.positions[:, : index.shape[1]],  # renumbered afterwards
        segments=pick(layout.segments),
        roles=pick(layout.roles),
        lengths=None,
    )


class SinkState(SlotState[SinkSlotTable]):
    """Keys before rotary positions, and values, of the tokens in a `SinkSlotTable`."""

    unrotated = True

    def __init__(self, slot_table: SinkSlotTable) -> None:
        super().__init__(slot_table)
        self._buffers: list[Tensor] = []  # keys and values, (B, K, slots, D)
        self._count = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        new = (k.transpose(1, 2), v.transpose(1, 2))
        if not self._buffers:
            self._buffers = [x[:, :, :0] for x in new]
        index = self.slot_table.index
        if index is not None:
            self._buffers, self._count = [_gather_slots(t, index) for t in self._used()], index.shape[1]
        room = self.slot_table.sinks + self.slot_table.window
        self._buffers = [put(t, x, self._count, room) for t, x in zip(self._buffers, new, strict=True)]
        self._count += k.shape[1]
        keys, values = (t.transpose(1, 2) for t in self._used())
        return keys, values

    def _used(self) -> list[Tensor]:
        return [t[:, :, : self._count] for t in self._buffers]

    def reorder(self, rows: Tensor) -> None:
        self._buffers = [select(t, rows, self._count) for t in self._buffers]

    def rewind(self, n: int) -> None:
        self._count = max(self._count - n, 0)

    def tensors(self) -> dict[str, Tensor]:
        return dict(zip("kv", self._used(), strict=False))

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self._buffers = [tensors[name] for name in "kv"] if tensors else []
        self._count = self._buffers[0].shape[2] if self._buffers else 0


def _gather_slots(t: Tensor, index: Tensor) -> Tensor:
    """The slots of (B, K, slots, D) at (B or 1, n) indices."""
    if len(index) == 1:
        return t.index_select(2, index[0])
    return t.gather(2, index[:, None, :, None].expand(-1, t.shape[1], -1, t.shape[3]))
