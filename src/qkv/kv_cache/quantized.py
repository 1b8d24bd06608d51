"""A cache in 8 or 4 bits (KIVI, Liu et al. 2024): keys by channel, values by token, the newest tokens as they are."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..core.layout import Layout
from .codes import Along, Bits, Codes, Held, encode
from .slot_table import Ledger, SlidingLedger
from .slots import put, select


class QuantizedState:
    """Keys in groups of `group` tokens with a scale for each channel, values with a scale for each token.

    At least the newest `residual` tokens, and fewer than `residual` + `group`, are kept as they came. What a step feeds is
    attended to as it came, and what is complete of it is coded afterwards.
    """

    unrotated = False

    def __init__(self, ledger: Ledger, bits: Bits, group: int, residual: int) -> None:
        self.ledger = ledger
        self._halves = {"k": _Half(bits, "channel", group, residual), "v": _Half(bits, "token", group, residual)}

    @property
    def layout(self) -> Layout:
        return self.ledger.layout

    def append(self, k: Tensor, v: Tensor) -> tuple[Held | Tensor, Held | Tensor]:
        first = self.ledger.first if isinstance(self.ledger, SlidingLedger) else 0
        keys, values = (
            half.append(new.transpose(1, 2), first) for half, new in zip(self._halves.values(), (k, v), strict=True)
        )
        return keys, values

    def reorder(self, rows: Tensor) -> None:
        for half in self._halves.values():
            half.select(rows)

    def check_rewind(self, n: int) -> None:
        """The ledger refuses what can't be taken back."""

    def rewind(self, n: int) -> None:
        """Take back the last n tokens; of a group that is cut into, what is left is decoded."""
        for half in self._halves.values():
            half.shorten(n)

    def tensors(self) -> dict[str, Tensor]:
        return {f"{name}.{part}": t for name, half in self._halves.items() for part, t in half.tensors().items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for name, half in self._halves.items():
            mine = {part: tensors[f"{name}.{part}"] for part in ("data", "scale", "base", "tail") if tensors}
            half.restore(mine, self.ledger.first if isinstance(self.ledger, SlidingLedger) else 0)

    @property
    def parts(self) -> dict[str, int]:
        """Bytes of the codes, of their scales and bases, and of the tokens that are kept as they came."""
        sizes = {"payload": 0, "scales": 0, "residual": 0}
        for tensors in (half.tensors() for half in self._halves.values()):
            for name, part in {"data": "payload", "scale": "scales", "base": "scales", "tail": "residual"}.items():
                sizes[part] += tensors[name].numel() * tensors[name].element_size() if tensors else 0
        return sizes

    @property
    def nbytes(self) -> int:
        return sum(self.parts.values())


class _Half:
    """Keys, or values: coded groups with room for more, and a tail with room for `residual` + `group` tokens."""

    def __init__(self, bits: Bits, along: Along, group: int, residual: int) -> None:
        self.bits, self.along, self.group, self.residual = bits, along, group, residual
        self._codes: Codes | None = None
        self._tail: Tensor | None = None
        self._groups = self._count = self._first = 0  # groups coded, tokens in the tail, tokens let go before them

    def _held(self) -> tuple[Codes, Tensor]:
        assert self._codes is not None and self._tail is not None
        return self._codes.cut(0, self._groups), self._tail[:, :, : self._count]

    def append(self, new: Tensor, first: int) -> Held | Tensor:
        """Keep (B, K, T, D); returns all there is, once the tokens before `first` are let go."""
        if self._tail is None or self._codes is None:
            self._tail = new.new_empty(*new.shape[:2], self.group + self.residual, new.shape[3])
            self._codes = encode(new[:, :, :0], self.bits, self.along, self.group)
        self._let_go(first)
        codes, tail = self._held()
        if self._count + new.shape[2] < self._tail.shape[2]:
            self._tail[:, :, self._count : self._count + new.shape[2]] = new
            self._count += new.shape[2]
            return Held(*self._held()) if self._groups else self._held()[1].transpose(1, 2)
        tail = torch.cat([tail, new], 2)
        found = Held(codes, tail) if self._groups else tail.transpose(1, 2)
        self._code(tail)
        return found

    def _code(self, tail: Tensor) -> None:
        """Code what is complete of a tail and older than the newest `residual` tokens; the rest becomes the tail."""
        assert self._codes is not None
        whole = max(0, tail.shape[2] - self.residual) // self.group
        made = encode(tail[:, :, : whole * self.group], self.bits, self.along, self.group)
        data, scale, base = (
            put(held if held.shape[2] else None, more, self._groups) if whole else held
            for held, more in zip(self._codes.tensors(), made.tensors(), strict=True)
        )
        self._codes, self._groups = replace(self._codes, data=data, scale=scale, base=base), self._groups + whole
        self._keep(tail[:, :, whole * self.group :])

    def _keep(self, tail: Tensor) -> None:
        """A tail of its own, since the step that it came with still reads the old one."""
        self._tail = put(None, tail, 0, most=self.group + self.residual)
        self._count = tail.shape[2]

    def _let_go(self, first: int) -> None:
        """Drop the groups before token `first`; the ledger names whole groups."""
        assert self._codes is not None
        drop, self._first = (first - self._first) // self.group, first
        if drop:
            data, scale, base = (t.clone() for t in self._codes.cut(drop, self._groups).tensors())
            self._codes, self._groups = replace(self._codes, data=data, scale=scale, base=base), self._groups - drop

    def shorten(self, n: int) -> None:
        if self._codes is None or n <= self._count:
            self._count -= min(n, self._count)
            return
        assert self._tail is not None
        left = self._groups * self.group + self._count - n
        self._groups, rest = divmod(left, self.group)
        cut = self._codes.cut(self._groups, self._groups + 1).decoded()[:, :, :rest]
        self._keep(cut.to(self._tail.dtype))

    def select(self, rows: Tensor) -> None:
        if self._codes is not None and self._tail is not None:
            data, scale, base = (select(t, rows, self._groups) for t in self._codes.tensors())
            self._codes = replace(self._codes, data=data, scale=scale, base=base)
            self._tail = select(self._tail, rows, self._count)

    def tensors(self) -> dict[str, Tensor]:
        if self._codes is None:
            return {}
        codes, tail = self._held()
        return dict(zip(("data", "scale", "base", "tail"), (*codes.tensors(), tail), strict=True))

    def restore(self, tensors: dict[str, Tensor], first: int) -> None:
        if tensors:
            self._codes = Codes(self.bits, tensors["data"], tensors["scale"], tensors["base"])
            self._groups, self._first = self._codes.data.shape[2], first
            self._keep(tensors["tail"])
