"""The plain KV cache of a layer: all keys and values, or a ring buffer of the last `size` tokens for windowed attention.

Also the interfaces of all caches: `LayerState`, `AttentionState`, `Serializable`. Other forms are chosen by a `CacheKind`
(`kv_cache.kinds`); mechanisms other than soft-max over keys define their own state.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...core.layout import Layout
from .quantization import QuantizedKV
from .slot_table import SlotTable, ring_index
from .slot_table import SlotTables as SlotTables
from .slots import SlotState, put, select, select_in_place, size_of, slots_for, with_room

KeysValues = tuple[Tensor, Tensor]
MaybeQuantized = Tensor | QuantizedKV


class LayerState(Protocol):
    """The decoding state of one layer, of any kind. How a mixer adds tokens to its state is up to them."""

    def reorder(self, rows: Int[Tensor, " N"]) -> None:
        """Row i becomes the old row `rows[i]`."""
        ...

    def check_rewind(self, n: int) -> None:
        """Raise ValueError if the last n tokens can't be removed."""
        ...

    def rewind(self, n: int) -> None:
        """Remove the last n tokens of every row."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes in use."""
        ...


class AttentionState(LayerState, Protocol):
    """The state of a layer that attends to keys and values.

    `unrotated`: it takes and returns keys before rotary positions are applied, for the tokens in `layout`. A state that
    defines `observe(weights)` is given the attention weights after each step (`kv_cache.eviction`).
    """

    unrotated: bool

    @property
    def layout(self) -> Layout:
        """The layout of the keys and values that the last `append` returned."""
        ...

    def append(self, k: Float[Tensor, "B T K D"], v: Float[Tensor, "B T K E"]) -> tuple[MaybeQuantized, MaybeQuantized]:
        """Add the tokens that the slot table admitted last; returns the keys and values to attend to."""
        ...


@runtime_checkable
class Serializable(Protocol):
    """A state that can be written to a file."""

    def tensors(self) -> dict[str, Tensor]:
        """Its tensors by name; none before the first token."""
        ...

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over saved tensors."""
        ...

    @property
    def parts(self) -> dict[str, int]:
        """Bytes by kind; they sum to `nbytes`."""
        ...


class KeyValueState(SlotState[SlotTable]):
    """Keys and values of all tokens, or of a ring buffer's tokens, as its slot table says. Padding is stored as zeros.

    Buffers are (B, K, slots, D), as kernels read them: a head's keys are contiguous.
    """

    def __init__(self, slot_table: SlotTable, capacity: int | None = None) -> None:
        super().__init__(slot_table)
        self.capacity = capacity or 0
        self._k: Tensor | None = None  # (B, K, slots, D), with slots to spare
        self._v: Tensor | None = None
        self._is_seen = False  # whether others may have views of the buffers, whose rows then stay where they are

    def append(self, k: Tensor, v: Tensor) -> KeysValues:
        self._is_seen = True
        k, v = self._append(k.transpose(1, 2), v.transpose(1, 2))
        return k.transpose(1, 2), v.transpose(1, 2)

    def place(self, count: int) -> tuple[int, int] | None:
        """The first slot of the `count` newest tokens, and the number of slots to attend to.

        None if `append` does more than write them: where several tokens replace the oldest of a ring buffer.
        """
        step, size = self.slot_table.step, self.slot_table.size
        if step.count != count:
            return None
        if not step.wrapped:
            return step.before, step.before + count
        assert size is not None
        return (step.before % size, size) if count == 1 and step.before >= size else None

    @property
    def is_empty(self) -> bool:
        """Whether the newest tokens are the first ones, of which nothing is kept yet, and there is no ring buffer."""
        step = self.slot_table.step
        return self._k is None and not step.before and not step.wrapped and self.slot_table.size is None

    def first_buffers(
        self, k: tuple[int, int, int], v: tuple[int, int, int], dtype: torch.dtype, padded: bool
    ) -> KeysValues:
        """Buffers for keys and values (B, K, D) of the first tokens, for a kernel that writes the ones that aren't
        padding; `is_empty` is true."""
        count = self.slot_table.step.count
        slots = slots_for(0, count, self.capacity)
        self._k, self._v = (torch.empty(b, heads, slots, width, dtype=dtype) for b, heads, width in (k, v))
        if padded:
            for buffer in (self._k, self._v):
                buffer[:, :, :count] = 0.0
        return self._k, self._v

    def buffers(self, count: int) -> KeysValues | None:
        """Buffers (B, K, slots, D) with room for the `count` newest tokens, for a kernel that writes their keys and values.

        None before the first tokens.
        """
        step, size = self.slot_table.step, self.slot_table.size
        if self._k is None or self._v is None:
            return None
        if not step.wrapped:
            stop = step.before + count
            self._k, self._v = (with_room(x, step.before, stop, self.capacity, size) for x in (self._k, self._v))
        return self._k, self._v

    def holds(self, buffers: KeysValues) -> bool:
        """Whether its buffers are still these."""
        return self._k is buffers[0] and self._v is buffers[1]

    def whole_buffers(self) -> KeysValues | None:
        """Its buffers with all their slots; None before the first tokens."""
        return None if self._k is None or self._v is None else (self._k, self._v)

    def _append(self, k: Tensor, v: Tensor) -> KeysValues:
        step, size = self.slot_table.step, self.slot_table.size
        if not step.wrapped:
            self._k, self._v = (
                put(buffer, new, step.before, self.capacity, size) for buffer, new in ((self._k, k), (self._v, v))
            )
            stop = step.before + step.count
            return self._k[:, :, :stop], self._v[:, :, :stop]
        assert size is not None
        if step.count == 1 and self._k is not None and self._v is not None and step.before >= size:
            slot = step.before % size
            self._k[:, :, slot], self._v[:, :, slot] = k[:, :, 0], v[:, :, 0]
            return self._k[:, :, :size], self._v[:, :, :size]
        used = min(step.before, size)
        if self._k is not None and self._v is not None:
            k, v = torch.cat([self._k[:, :, :used], k], 2), torch.cat([self._v[:, :, :used], v], 2)
        index = ring_index(step.before, k.shape[2], size, k.device)
        self._k, self._v = k.index_select(2, index), v.index_select(2, index)
        return k, v

    def _used(self) -> list[Tensor]:
        """Keys and values without the spare slots."""
        if self._k is None or self._v is None:
            return []
        self._is_seen = True
        used = min(self.slot_table.length, self._k.shape[2])
        return [self._k[:, :, :used], self._v[:, :, :used]]

    def reorder(self, rows: Tensor) -> None:
        if self._k is not None and self._v is not None:
            used = min(self.slot_table.length, self._k.shape[2])
            if self._is_seen or len(rows) != len(self._k) or torch.is_grad_enabled():
                self._k, self._v = select(self._k, rows, used), select(self._v, rows, used)
                self._is_seen = False
            else:
                for buffer in (self._k, self._v):
                    select_in_place(buffer, rows, used)

    def tensors(self) -> dict[str, Tensor]:
        return dict(zip("kv", self._used(), strict=False))

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self._k, self._v, self._is_seen = tensors.get("k"), tensors.get("v"), True


class InputState(KeyValueState):
    """The inputs of a layer so far, for mixers without a state, which run over all of them again at each step."""

    def add(self, x: Float[Tensor, "B T M"]) -> Float[Tensor, "B S M"]:
        """Add the inputs of the newest tokens; returns the inputs of all tokens."""
        rows = x.unsqueeze(2)
        return self.append(rows, rows[..., :0])[0].squeeze(2)

    @property
    def parts(self) -> dict[str, int]:
        return {"inputs": size_of(self._used())}


class CrossState:
    """The encoder's keys and values for cross-attention, projected once for each source.

    Consecutive rows of one source, such as its beams, share them on CPUs: `shared` has them once, and `keys_values` for
    each row.
    """

    PART = "encoder's keys and values"
    unrotated = False

    def __init__(self) -> None:
        self._shared: SharedKeysValues | None = None
        self._rows: SharedKeysValues | None = None  # the same for each row

    @property
    def layout(self) -> Layout:
        return self.for_each_row().layout

    def fill(self, k: Tensor, v: Tensor, layout: Layout) -> None:
        self._shared, self._rows = SharedKeysValues(k, v, layout, 1), None

    def append(self, k: Tensor, v: Tensor) -> KeysValues:
        raise AssertionError("keys of an encoder can't be added")

    @property
    def filled(self) -> bool:
        return self._shared is not None

    @property
    def shared(self) -> SharedKeysValues:
        assert self._shared is not None
        return self._shared

    @property
    def keys_values(self) -> KeysValues:
        found = self.for_each_row()
        return found.k, found.v

    def for_each_row(self) -> SharedKeysValues:
        """Keys and values repeated for each row."""
        shared = self.shared
        if shared.rows == 1:
            return shared
        if self._rows is None:
            index = torch.arange(len(shared.k), device=shared.k.device).repeat_interleave(shared.rows)
            self._rows = shared.select(index, 1)
        return self._rows

    def holds(self, shared: SharedKeysValues) -> bool:
        """Whether its keys and values are still these, shared or for each row."""
        return shared is self._shared or shared is self._rows

    def reorder(self, rows: Tensor) -> None:
        if self._shared is not None:
            sources, each = _runs_of(rows // self._shared.rows)
            self._shared, self._rows = self._shared.select(sources, each), None

    def check_rewind(self, n: int) -> None:
        """Nothing to refuse."""

    def rewind(self, n: int) -> None:
        """Nothing to take back."""

    @property
    def parts(self) -> dict[str, int]:
        return {self.PART: self.nbytes}

    @property
    def nbytes(self) -> int:
        return sum(size_of((each.k, each.v)) for each in (self._shared, self._rows) if each is not None)


class SharedKeysValues(NamedTuple):
    """Keys and values (B, S, K, D) of sources, each of which has `rows` consecutive rows, and their layout."""

    k: Tensor
    v: Tensor
    layout: Layout
    rows: int

    def select(self, sources: Int[Tensor, " N"], rows: int) -> SharedKeysValues:
        """Return the keys and values of the sources with these indices, in this order. Each then has `rows` rows."""
        if sources.device.type == "cpu" and torch.equal(sources, torch.arange(len(self.k))):
            return self if rows == self.rows else self._replace(rows=rows)
        k, v = (x.index_select(0, sources) for x in (self.k, self.v))
        return SharedKeysValues(k, v, self.layout.select(sources), rows)


def _runs_of(sources: Int[Tensor, " N"]) -> tuple[Tensor, int]:
    """Each run of equal sources, and their length if it is the same; else all sources, and 1."""
    if sources.device.type != "cpu":  # which would have to wait for the result
        return sources, 1
    found, counts = torch.unique_consecutive(sources, return_counts=True)
    lengths = set(counts.tolist())
    return (found, lengths.pop()) if len(lengths) == 1 else (sources, 1)
