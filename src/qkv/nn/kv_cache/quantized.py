"""Quantized KV cache in 8 or 4 bits (KIVI, Liu et al. 2024): keys per channel, values per token, newest tokens in full."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .quantization import Bits, Per, QuantizedKV, QuantizedTensor, quantize
from .slot_table import SlidingSlotTable, SlotTable
from .slots import SlotState, put, select, size_of

_FILE_NAMES = ("data", "scale", "base", "tail")  # of codes, scales, zero points and residual


class CachedCodes(NamedTuple):
    """Keys, or values: the first `groups` groups of `codes`, and the newest tokens (B, K, slots, D) in full precision."""

    codes: QuantizedTensor
    groups: int
    newest: Tensor


class QuantizedState(SlotState[SlotTable]):
    """Keys in groups of `group` tokens with a scale for each channel, values with a scale for each token.

    The newest tokens, at least `residual` and fewer than `residual` + `group`, stay in full precision. A step attends to its
    own tokens in full precision too; groups that it completes are quantized afterwards.
    """

    def __init__(self, slot_table: SlotTable, bits: Bits, group: int, residual: int) -> None:
        super().__init__(slot_table)
        self.group = group
        self._sides = {"k": _Side(bits, "channel", group, residual), "v": _Side(bits, "token", group, residual)}

    @property
    def _first(self) -> int:
        """The first token that is kept."""
        return self.slot_table.first if isinstance(self.slot_table, SlidingSlotTable) else 0

    def append(self, k: Tensor, v: Tensor) -> tuple[QuantizedKV | Tensor, QuantizedKV | Tensor]:
        keys, values = (
            side.append(new.transpose(1, 2), self._first)
            for side, new in zip(self._sides.values(), (k, v), strict=True)
        )
        return keys, values

    def place(self, count: int) -> tuple[int, int] | None:
        """Return the slot of the buffers at which a kernel writes `count` new tokens, and the number of tokens to attend to.

        Return None if `append` must add the tokens: the cache is empty, or a buffer has no room for them.
        """
        both = [side.place(count, self._first) for side in self._sides.values()]
        return both[0] if both[0] == both[1] and self.slot_table.step.count == count else None

    def held(self) -> tuple[CachedCodes, CachedCodes]:
        """Return the codes and newest tokens of keys, and of values. Call this only after `place` returned a slot."""
        return self._sides["k"].held(), self._sides["v"].held()

    def holds(self, held: tuple[CachedCodes, CachedCodes]) -> bool:
        """Return whether the cache still stores keys and values in the tensors that `held` returned before."""
        return self._sides["k"].holds(held[0]) and self._sides["v"].holds(held[1])

    def written(self, count: int) -> None:
        """Note that a kernel has written `count` tokens to the slots that `place` named."""
        for side in self._sides.values():
            side.written(count)

    def reorder(self, rows: Tensor) -> None:
        for side in self._sides.values():
            side.select(rows)

    def rewind(self, n: int) -> None:
        """Remove the last n tokens; the rest of a group that this cuts is dequantized."""
        for side in self._sides.values():
            side.shorten(n)

    def tensors(self) -> dict[str, Tensor]:
        return {f"{name}.{part}": t for name, side in self._sides.items() for part, t in side.tensors().items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for name, side in self._sides.items():
            side.restore({part: tensors[f"{name}.{part}"] for part in _FILE_NAMES if tensors}, self._first)

    @property
    def parts(self) -> dict[str, int]:
        """Bytes of the codes, of their scales and zero points, and of the tokens in full precision."""
        sizes = {"payload": 0, "scales": 0, "residual": 0}
        for tensors in (side.tensors() for side in self._sides.values()):
            for name, part in zip(_FILE_NAMES, ("payload", "scales", "scales", "residual"), strict=True):
                sizes[part] += size_of([tensors[name]] if tensors else [])
        return sizes


class _Side:
    """Keys, or values: quantized groups with room for more, and a buffer of `residual` + `group` tokens in full."""

    def __init__(self, bits: Bits, per: Per, group: int, residual: int) -> None:
        self.bits, self.per, self.group, self.residual = bits, per, group, residual
        self._codes: QuantizedTensor | None = None
        self._buffer: Tensor | None = None  # of the newest tokens
        self._groups = self._count = self._first = 0  # quantized groups, tokens in the buffer, dropped tokens

    def _used(self) -> tuple[QuantizedTensor, Tensor]:
        assert self._codes is not None and self._buffer is not None
        return self._codes.groups(0, self._groups), self._buffer[:, :, : self._count]

    def append(self, new: Tensor, first: int) -> QuantizedKV | Tensor:
        """Add (B, K, T, D) and drop the tokens before `first`; returns all that remain."""
        if self._buffer is None or self._codes is None:
            self._buffer = new.new_empty(*new.shape[:2], self.group + self.residual, new.shape[3])
            self._codes = quantize(new[:, :, :0], self.bits, self.per, self.group)
        self._drop(first)
        codes, residual = self._used()
        if self._count + new.shape[2] < self._buffer.shape[2]:
            self._buffer[:, :, self._count : self._count + new.shape[2]] = new
            self._count += new.shape[2]
            return QuantizedKV(*self._used()) if self._groups else self._used()[1].transpose(1, 2)
        residual = torch.cat([residual, new], 2)
        everything = QuantizedKV(codes, residual) if self._groups else residual.transpose(1, 2)
        self._quantize(residual)
        return everything

    def place(self, count: int, first: int) -> tuple[int, int] | None:
        """Drop the tokens before `first`. Return the slot of `count` new tokens and the number of all tokens, or None."""
        if self._buffer is None:
            return None
        self._drop(first)
        stop = self._count + count
        return (self._count, self._groups * self.group + stop) if stop <= self._buffer.shape[2] else None

    def held(self) -> CachedCodes:
        assert self._codes is not None and self._buffer is not None
        return CachedCodes(self._codes, self._groups, self._buffer)

    def holds(self, held: CachedCodes) -> bool:
        return self._codes is held.codes and self._groups == held.groups and self._buffer is held.newest

    def written(self, count: int) -> None:
        assert self._buffer is not None
        self._count += count
        if self._count == self._buffer.shape[2]:
            self._quantize(self._buffer)

    def _quantize(self, residual: Tensor) -> None:
        """Quantize the complete groups that are older than the newest `residual` tokens; the rest fills the buffer."""
        assert self._codes is not None
        complete = max(0, residual.shape[2] - self.residual) // self.group
        if complete:
            added = quantize(residual[:, :, : complete * self.group], self.bits, self.per, self.group)
            pairs = zip(self._codes.tensors(), added.tensors(), strict=True)
            tensors = [put(old if old.shape[2] else None, new, self._groups) for old, new in pairs]
            self._codes, self._groups = self._codes.with_tensors(*tensors), self._groups + complete
        self._refill(residual[:, :, complete * self.group :])

    def _refill(self, residual: Tensor) -> None:
        """Copy into its own buffer, since the current step still reads the old one."""
        self._buffer = put(None, residual, 0, most=self.group + self.residual)
        self._count = residual.shape[2]

    def _drop(self, first: int) -> None:
        """Drop the groups before token `first`; the slot table drops whole groups only."""
        assert self._codes is not None
        dropped, self._first = (first - self._first) // self.group, first
        if dropped:
            left = self._codes.groups(dropped, self._groups)
            self._codes = left.with_tensors(*(t.clone() for t in left.tensors()))
            self._groups -= dropped

    def shorten(self, n: int) -> None:
        if self._codes is None or n <= self._count:
            self._count -= min(n, self._count)
            return
        assert self._buffer is not None
        left = self._groups * self.group + self._count - n
        self._groups, rest = divmod(left, self.group)
        last = self._codes.groups(self._groups, self._groups + 1).dequantize()[:, :, :rest]
        self._refill(last.to(self._buffer.dtype))

    def select(self, rows: Tensor) -> None:
        if self._codes is not None and self._buffer is not None:
            self._codes = self._codes.with_tensors(*(select(t, rows, self._groups) for t in self._codes.tensors()))
            self._buffer = select(self._buffer, rows, self._count)

    def tensors(self) -> dict[str, Tensor]:
        if self._codes is None:
            return {}
        codes, residual = self._used()
        return dict(zip(_FILE_NAMES, (*codes.tensors(), residual), strict=True))

    def restore(self, tensors: dict[str, Tensor], first: int) -> None:
        if tensors:
            data, scale, zero_point, residual = (tensors[name] for name in _FILE_NAMES)
            self._codes = QuantizedTensor(self.bits, data, scale, zero_point)
            self._groups, self._first = data.shape[2], first
            self._refill(residual)
