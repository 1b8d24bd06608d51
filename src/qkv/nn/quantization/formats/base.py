"""`Format`, the base class of storage formats of quantized weights, and `Packed`, a matrix in one of them.

A matrix W (d_out, d_in) is split into groups of g neighboring columns of a row. Each group has a scale, and each weight a
code of few bits: W ≈ decode(code) · scale, or for integers with zero points (code − zero) · scale. One group of all d_in
columns is quantization per channel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from ....core.spec import brief, nearest

Scales = tuple[Tensor, Tensor | None]
"""Scales as they are stored, and zero points or None; both (…, groups)."""
_FORMATS: dict[str, Format] = {}


class Format:
    """Base class of formats. All have one instance, which is registered by its name.

    bits:        of a code.
    usual_group: columns of a group by default, or the largest smaller power of two that divides a row; None for one scale
                 per channel.
    only_group:  the only size of a group that the format has, if so.
    """

    name: ClassVar[str]
    bits: ClassVar[int]
    usual_group: ClassVar[int | None] = None
    only_group: ClassVar[int | None] = None
    has_zeros: ClassVar[bool] = False
    code_dtype: ClassVar[torch.dtype] = torch.uint8
    scale_dtype: ClassVar[torch.dtype] = torch.float32

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            _FORMATS[cls.name] = cls()

    def fit(self, groups: Float[Tensor, "… N g"], symmetric: bool = True, shrink: float = 1.0) -> Scales:
        """Return the scales of groups, so codes reach `shrink` times the largest weight of each."""
        raise NotImplementedError

    def encode(self, x: Tensor, scales: Tensor, zeros: Tensor | None) -> Tensor:
        """Return the nearest code of each number, one code per element. `scales` are as stored, and broadcast."""
        raise NotImplementedError

    def decode(self, codes: Tensor, scales: Tensor, zeros: Tensor | None) -> Float[Tensor, "…"]:
        """Return the number of each code, in fp32."""
        raise NotImplementedError

    def pack(self, codes: Tensor) -> Tensor:
        """Return codes (…, d_in) as they are stored."""
        return codes

    def unpack(self, stored: Tensor) -> Tensor:
        """Undo `pack`."""
        return stored

    def group_size(self, d_in: int, wanted: int | None = None) -> int:
        """Return the size of the groups of rows of `d_in` weights. Raises ValueError, with what such rows can take."""
        if self.bits == 4 and d_in % 2:
            raise ValueError(f"has {d_in} inputs, an odd number, and {self.name} keeps two codes in a byte; int8 can")
        if self.only_group is not None:
            if wanted not in (None, self.only_group):
                raise ValueError(f"can't have groups of {wanted}: {self.name} has groups of {self.only_group}")
            if d_in % self.only_group:
                others = ", ".join(name for name, other in _FORMATS.items() if other.only_group is None)
                raise ValueError(
                    f"has {d_in} inputs, and {self.name} takes multiples of {self.only_group}; {others} can"
                )
            return self.only_group
        if wanted is None:
            return d_in if self.usual_group is None else _divisor(d_in, self.usual_group)
        if wanted < 1 or d_in % wanted:
            raise ValueError(
                f"has {d_in} inputs, which groups of {wanted} don't divide; groups of {_divisor(d_in, 128)} do"
            )
        return wanted

    def packed(self, codes: Tensor, scales: Tensor, zeros: Tensor | None) -> Packed:
        """Pack the codes of a matrix, one per element. The result is contiguous, as the kernels require."""
        zeros = None if zeros is None else zeros.contiguous()
        return Packed(self, (codes.shape[0], codes.shape[1]), self.pack(codes).contiguous(), scales.contiguous(), zeros)

    def blank(self, shape: tuple[int, int], group: int, device: torch.device, symmetric: bool = True) -> Packed:
        """Return a matrix with uninitialized codes and scales."""
        d_out, groups = shape[0], shape[1] // group
        codes = torch.empty(d_out, shape[1] * self.bits // 8, dtype=self.code_dtype, device=device)
        scales = torch.empty(d_out, groups, dtype=self.scale_dtype, device=device)
        zeros = None if symmetric else torch.empty(d_out, groups, dtype=torch.int8, device=device)
        return Packed(self, shape, codes, scales, zeros)


def _divisor(d_in: int, most: int) -> int:
    """The largest power of two up to `most` that divides d_in; d_in itself if that is below 16."""
    size = most
    while size >= 16 and d_in % size:
        size //= 2
    return size if size >= 16 else d_in


def _rows(tensor: Tensor, which: slice | Tensor) -> Tensor:
    if isinstance(which, slice):
        return tensor[which]
    raw = tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor  # fp8 as bytes, which every device chooses
    return raw.index_select(0, which).view(tensor.dtype)


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    dtype = tensors[0].dtype
    raw = [t.view(torch.uint8) for t in tensors] if dtype.itemsize == 1 else list(tensors)  # nor a concatenation
    return torch.cat(raw).view(dtype)


def format_of(name: str) -> Format:
    """The format of a name. Raises ValueError, with the nearest names, for any other."""
    if name not in _FORMATS:
        raise ValueError(f"there is no format of weights {brief(name)}; {nearest(name, _FORMATS)}")
    return _FORMATS[name]


@dataclass(frozen=True, eq=False)
class Packed:
    """A matrix (d_out, d_in) in a format.

    codes:  as stored: int8 (d_out, d_in) for int8, fp8 for fp8, and for formats of 4 bits uint8 (d_out, d_in/2) with the
            code of an even column in the lower half of a byte; int4 keeps q + 8 for q in −8 … 7.
    scales: (d_out, groups), fp32, or for mxfp4 uint8 exponents.
    zeros:  int8 (d_out, groups); None for symmetric groups.
    order:  int32 (d_in,), the column of the matrix that each column of the codes is; None if that is the same.
    """

    format: Format
    shape: tuple[int, int]
    codes: Tensor
    scales: Tensor
    zeros: Tensor | None = None
    order: Tensor | None = None

    @property
    def group(self) -> int:
        """Columns of a group."""
        return self.shape[1] // self.scales.shape[1]

    @property
    def n_bytes(self) -> int:
        """Bytes of the tensors."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name."""
        named = {"codes": self.codes, "scales": self.scales, "zeros": self.zeros, "order": self.order}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same matrix with other tensors, such as some of its rows."""
        codes = tensors["codes"]
        return replace(self, shape=(codes.shape[0], self.shape[1]), **dict[str, Any](tensors))

    def rows(self, which: slice | Tensor) -> Self:
        """Some rows."""
        return self.with_tensors({n: t if n == "order" else _rows(t, which) for n, t in self.tensors().items()})

    @classmethod
    def below_one_another(cls, parts: Sequence[Packed]) -> Packed:
        """The rows of several matrices of one format and width, without `order`, as one matrix."""
        tensors = [part.tensors() for part in parts]
        return parts[0].with_tensors({name: _joined([each[name] for each in tensors]) for name in tensors[0]})

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the matrix that the codes stand for."""
        codes = self.format.unpack(self.codes).unflatten(1, (-1, self.group))
        zeros = None if self.zeros is None else self.zeros[..., None]
        values = self.format.decode(codes, self.scales[..., None], zeros).flatten(1).to(dtype)
        return values if self.order is None else values[:, self.order.long().argsort()]
