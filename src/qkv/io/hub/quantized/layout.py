"""`QuantizedLayout`, the base class for the ways in which libraries store quantized matrices; codes packed into int32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from pydantic import TypeAdapter
from torch import Tensor

from ....nn.quantization.formats import Packed
from ....nn.quantization.scheme import Activations
from ..files import WeightFiles
from ..transforms import Shape


class QuantizedLayout:
    """Which tensors of a file are the parts of one quantized matrix, and what matrix that is.

    mark:  the ending of the tensor that tells that a layer is quantized.
    parts: the endings of all its tensors.
    schema: what is read of its `quantization_config`.
    """

    mark: str
    parts: tuple[str, ...]
    schema: ClassVar[TypeAdapter[Any]]

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config

    @property
    def usual_weights(self) -> str:
        """The format of its matrices, or of most."""
        raise NotImplementedError

    def layers(self, weights: WeightFiles) -> Iterator[str]:
        """The names of the quantized layers in a file, without an ending."""
        return (name.removesuffix(self.mark) for name in weights.shapes if name.endswith(self.mark))

    def shape(self, layer: str, weights: WeightFiles) -> Shape:
        """(d_out, d_in) of a layer, by the headers."""
        raise NotImplementedError

    def read(self, layer: str, weights: WeightFiles) -> Packed:
        """The matrix of a layer."""
        raise NotImplementedError

    def activations(self, layer: str) -> Activations:
        """How the inputs of a layer are quantized."""
        return "none"


def unpack_int32(words: Tensor, bits: int, order: tuple[int, ...] | None = None) -> Tensor:
    """Codes of int32 words (…, n) as uint8 (…, 32/bits · n), the lowest bits first. `order` gives the place of each
    code in its word."""
    count = 32 // bits
    codes = words.new_empty(*words.shape, count, dtype=torch.uint8)
    for i in range(count):
        codes[..., i if order is None else order[i]] = (words >> (bits * i)) & ((1 << bits) - 1)
    return codes.flatten(-2)


def pack_int32(codes: Tensor, bits: int) -> Tensor:
    """uint8 codes (…, n) as int32 words (…, ⌈bits · n / 32⌉), the lowest bits first; the rest of the last word is 0."""
    count = 32 // bits
    padded = torch.nn.functional.pad(codes, (0, -codes.shape[-1] % count)).unflatten(-1, (-1, count)).long()
    words = (padded << (bits * torch.arange(count, device=codes.device))).sum(-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def sorted_columns(codes: Tensor, group_of: Tensor | None, group: int) -> tuple[Tensor, Tensor | None]:
    """Codes (d_out, d_in) with the columns of each group side by side, and which column each is; `group_of` names the group
    of each column, as GPTQ's `g_idx`."""
    if group_of is None or torch.equal(group_of.long(), torch.arange(len(group_of), device=codes.device) // group):
        return codes, None
    order = group_of.long().argsort(stable=True)
    return codes[:, order], order.to(torch.int32)
