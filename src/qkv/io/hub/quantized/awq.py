"""AWQ's layout, of AutoAWQ ("gemm"): `qweight` (d_in, d_out/8), `qzeros` (groups, d_out/8), `scales` (groups, d_out).

A word of int32 holds eight neighboring outputs, in the order 0, 2, 4, 6, 1, 3, 5, 7 from its lowest bits on.
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
from .layout import QuantizedLayout, unpack_int32

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


class _Config(TypedDict):
    bits: NotRequired[int]
    w_bit: NotRequired[int]
    version: NotRequired[str]


class AWQ(QuantizedLayout):
    """Matrices of 4 bits. Raises ValueError for other widths and layouts."""

    mark = ".qweight"
    parts = (".qweight", ".qzeros", ".scales")
    schema = TypeAdapter(_Config)

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        bits = config.get("bits", config.get("w_bit"))
        if bits != 4:
            raise ValueError(f"bits is {brief(bits)}, and AWQ's weights are read with 4")
        if str(config.get("version", "gemm")).lower() != "gemm":
            raise ValueError(f"version is {brief(config['version'])}, and AWQ's weights are read in the layout 'gemm'")

    @property
    def usual_weights(self) -> str:
        return "int4"

    def shape(self, layer: str, weights: WeightFiles) -> Shape:
        d_in, words = weights.shapes[f"{layer}.qweight"]
        return (words * 8, d_in)

    def read(self, layer: str, weights: WeightFiles) -> Packed:
        scales = weights.read(f"{layer}.scales").float().T.contiguous()
        codes = unpack_int32(weights.read(f"{layer}.qweight"), 4, ORDER).T.int() - 8
        zeros = unpack_int32(weights.read(f"{layer}.qzeros"), 4, ORDER).T.int() - 8
        zeros = zeros.to(torch.int8).contiguous()
        return format_of("int4").packed(codes.to(torch.int8).contiguous(), scales, zeros if bool(zeros.any()) else None)
