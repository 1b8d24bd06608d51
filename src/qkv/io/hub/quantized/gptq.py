"""GPTQ's layout, of AutoGPTQ and GPTQModel: `qweight` (d_in · bits/32, d_out), `qzeros` (groups, d_out · bits/32), `scales`
(groups, d_out) and `g_idx` (d_in), the group of each input.

W = (q − z) · s with unsigned q and z. `qzeros` hold z − 1, except in files of the checkpoint format `gptq_v2`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired

import torch
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from ....core.spec import brief
from ....nn.quantization.formats import Packed, format_of
from ..files import WeightFiles
from ..transforms import Shape
from .layout import QuantizedLayout, sorted_columns, unpack_int32


class _Config(TypedDict):
    bits: int
    checkpoint_format: NotRequired[str | None]


class GPTQ(QuantizedLayout):
    """Matrices of 4 or 8 bits. Raises ValueError for others."""

    mark = ".qweight"
    parts = (".qweight", ".qzeros", ".scales", ".g_idx")
    schema = TypeAdapter(_Config)

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        bits = config.get("bits")
        if bits not in (4, 8):
            raise ValueError(f"bits is {brief(bits)}, and GPTQ's weights are read with 4 or 8")
        self.bits: int = bits
        self.shift = 0 if config.get("checkpoint_format") == "gptq_v2" else 1

    @property
    def usual_weights(self) -> str:
        return f"int{self.bits}"

    def shape(self, layer: str, weights: WeightFiles) -> Shape:
        words, d_out = weights.shapes[f"{layer}.qweight"]
        return (d_out, words * 32 // self.bits)

    def read(self, layer: str, weights: WeightFiles) -> Packed:
        half, format = 1 << (self.bits - 1), format_of(f"int{self.bits}")
        scales = weights.read(f"{layer}.scales").float().T.contiguous()
        codes = unpack_int32(weights.read(f"{layer}.qweight").T.contiguous(), self.bits)
        zeros = unpack_int32(weights.read(f"{layer}.qzeros"), self.bits).T[: len(scales)].int() + self.shift - half
        grouping = weights.read(f"{layer}.g_idx") if f"{layer}.g_idx" in weights.shapes else None
        codes, order = sorted_columns((codes.int() - half).to(torch.int8), grouping, codes.shape[1] // scales.shape[1])
        centered = not bool(zeros.any())
        packed = format.packed(codes, scales, None if centered else zeros.to(torch.int8).contiguous())
        return Packed(format, packed.shape, packed.codes, packed.scales, packed.zeros, order)
