"""bitsandbytes' layout: NF4 in blocks of the flattened matrix, and int8 per channel (`SCB`).

NF4: `weight` (n/2, 1) with the first of two codes in the upper half of a byte, `weight.absmax` per block, and
`weight.quant_state.bitsandbytes__nf4`, JSON as bytes. Doubly quantized blocks have 8-bit `absmax`, with
`weight.nested_absmax`, `weight.nested_quant_map` and an offset. Int8: `weight`, and `SCB`, the largest |W| of a row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NotRequired

import torch
from pydantic import Field, TypeAdapter
from torch import Tensor
from typing_extensions import TypedDict

from ....core.json_files import checked
from ....nn.quantization.formats import Packed, format_of
from ....nn.quantization.formats.nf4 import LEVELS
from ..files import WeightFiles
from ..transforms import Shape
from .layout import QuantizedLayout

STATE = ".weight.quant_state.bitsandbytes__nf4"


class _Config(TypedDict):
    load_in_4bit: NotRequired[bool | None]
    bnb_4bit_quant_type: NotRequired[str]


Size = Annotated[int, Field(ge=1, lt=1 << 31)]


class _State(TypedDict):
    shape: Annotated[list[Size], Field(min_length=2, max_length=2)]
    blocksize: Size
    nested_blocksize: NotRequired[Size]
    nested_offset: NotRequired[Annotated[float, Field(allow_inf_nan=False)]]


_STATE = TypeAdapter(_State)


class BitsAndBytes(QuantizedLayout):
    """Matrices of NF4 or int8. Raises ValueError for FP4."""

    # fmt: off
    parts = (
        ".weight", ".weight.absmax", ".weight.quant_map", STATE, ".weight.nested_absmax", ".weight.nested_quant_map",
        ".SCB", ".weight_format",
    )
    # fmt: on

    schema = TypeAdapter(_Config)

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        if config.get("load_in_4bit") and config.get("bnb_4bit_quant_type", "fp4") != "nf4":
            raise ValueError("bnb_4bit_quant_type is fp4, and bitsandbytes' 4-bit weights are read as nf4")

    @property
    def usual_weights(self) -> str:
        return "nf4" if self.config.get("load_in_4bit") else "int8"

    def layers(self, weights: WeightFiles) -> Iterator[str]:
        for name in weights.shapes:
            for mark in (STATE, ".SCB"):
                if name.endswith(mark):
                    yield name.removesuffix(mark)

    def shape(self, layer: str, weights: WeightFiles) -> Shape:
        if f"{layer}.SCB" in weights.shapes:
            return weights.shapes[f"{layer}.weight"]
        return tuple(_state(layer, weights)["shape"])

    def read(self, layer: str, weights: WeightFiles) -> Packed:
        if f"{layer}.SCB" in weights.shapes:
            scales = weights.read(f"{layer}.SCB").float()[:, None] / 127
            return format_of("int8").packed(weights.read(f"{layer}.weight").view(torch.int8), scales, None)
        state = _state(layer, weights)
        (d_out, d_in), block = state["shape"], state["blocksize"]
        if d_in % block:
            raise ValueError(f"{layer} has {d_in} inputs, which its blocks of {block} don't divide")
        data = weights.read(f"{layer}.weight").view(torch.uint8).view(d_out, d_in // 2)
        scales = _absmax(layer, state, weights).view(d_out, d_in // block)
        return Packed(format_of("nf4"), (d_out, d_in), _swapped(data), scales)


def _state(layer: str, weights: WeightFiles) -> _State:
    """Raises ValueError naming the tensor if it is not what bitsandbytes writes."""
    name = f"{layer}{STATE}"
    try:
        state = json.loads(bytes(weights.read(name).flatten().tolist()))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{name} is not JSON as bytes: {error}") from None
    return checked(_STATE, state, name)


def _absmax(layer: str, state: _State, weights: WeightFiles) -> Tensor:
    absmax = weights.read(f"{layer}.weight.absmax")
    if f"{layer}.weight.nested_absmax" not in weights.shapes:
        return absmax.float()
    levels = weights.read(f"{layer}.weight.nested_quant_map").float()[absmax.long()]
    outer = weights.read(f"{layer}.weight.nested_absmax").float().repeat_interleave(state["nested_blocksize"])
    return levels * outer[: len(levels)] + state["nested_offset"]


def _swapped(data: Tensor) -> Tensor:
    """Bytes with their halves exchanged."""
    return data << 4 | data >> 4


def tensors(packed: Packed, dtype: torch.dtype) -> dict[str, Tensor]:
    """The tensors of a matrix of NF4, by their endings; `dtype` is that of the other weights."""
    state = {
        "quant_type": "nf4",
        "blocksize": packed.group,
        "dtype": str(dtype).removeprefix("torch."),
        "shape": list(packed.shape),
    }
    return {
        ".weight": _swapped(packed.codes).reshape(-1, 1),
        ".weight.absmax": packed.scales.reshape(-1),
        ".weight.quant_map": torch.tensor(LEVELS),
        STATE: torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8),
    }


def config(ignored: list[str], dtype: torch.dtype) -> dict[str, Any]:
    """`quantization_config` of a model with matrices of NF4."""
    return {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "load_in_8bit": False,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": False,
        "bnb_4bit_compute_dtype": str(dtype).removeprefix("torch."),
        "bnb_4bit_quant_storage": "uint8",
        "llm_int8_skip_modules": ignored,
    }
