"""Quantized blocks of GGUF as matrices of codes and scales that stay quantized in memory, and back.

Types without least values are exactly the formats of `nn/quantization/formats`, W = q · s with a scale for each group:

    q8_0, q5_0  int8 in groups of 32        q4_0  int4 in groups of 32
    q6_K        int8 in groups of 16        q3_K  int4 in groups of 16

Scales are fp32 here and fp16 in a file (of k-quants, fp16 times an integer), so reading is exact. Written are int8 as
q8_0 and int4 as q4_0, with the same codes, and scales rounded to fp16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ....nn.quantization.formats import Packed, format_of
from .block_types import BY_NAME, BlockType
from .blocks import PIECE, SIGNED

FORMATS = {"q8_0": "int8", "q5_0": "int8", "q4_0": "int4", "q6_k": "int8", "q3_k": "int4"}
"""The format in which each type stays."""
WRITTEN = {"int8": "q8_0", "int4": "q4_0"}
BLOCK = 32  # numbers of a block of the types that are written
LARGEST = 65504.0  # of fp16


def is_kept(kind: BlockType, shape: Sequence[int]) -> bool:
    """Whether a tensor stays quantized."""
    return kind.name in FORMATS and len(shape) in (2, 3)


def packed_of(data: Tensor, kind: BlockType, shape: Sequence[int]) -> Packed:
    """Return the matrix (d_out, d_in) that these bytes encode. Experts (E, d_out, d_in) are stacked along the first axis."""
    blocks, read, form = data.view(-1, kind.size), SIGNED[kind.name], format_of(FORMATS[kind.name])
    d_out, d_in = math.prod(shape[:-1]), shape[-1]
    rows = d_in // kind.width  # blocks of a row
    step = max(PIECE // d_in, 1) * rows
    pieces = [read(blocks[begin : begin + step]) for begin in range(0, len(blocks), step)]
    codes = torch.cat([form.pack(q.reshape(-1, d_in)) for q, _ in pieces])
    scales = torch.cat([scale.reshape(-1, scale.shape[1] * rows) for _, scale in pieces])
    return Packed(form, (d_out, d_in), codes, scales)


def type_of(packed: Packed, name: str) -> BlockType:
    """The type in which a matrix is written with its codes. Raises ValueError, naming it, if there is none."""
    what = packed.format.name
    if what not in WRITTEN:
        what = f"{what} weights"
    elif packed.zeros is not None:
        what = f"{what} weights with zero points"
    elif packed.order is not None:
        what = f"{what} weights whose columns are sorted into groups (GPTQ's desc_act)"
    elif packed.shape[1] % BLOCK or packed.group % BLOCK:
        what = f"{what} weights of {packed.shape[1]} inputs in groups of {packed.group}"
    else:
        return BY_NAME[WRITTEN[what]]
    raise ValueError(
        f"qkv writes no GGUF of {what} ({name}); it writes symmetric int8 and int4 in groups of {BLOCK} or multiples of it: "
        "quantize the run so, or convert the run that it was made from with --type q8_0"
    )


def bytes_of(packed: Packed, name: str) -> Tensor:
    """The bytes of a matrix in its `type_of`. Raises ValueError for scales beyond fp16."""
    d_in = packed.shape[1]
    if float(packed.scales.abs().max()) > LARGEST:
        raise ValueError(f"the scales of {name} have numbers beyond fp16's largest, 65,504, in which GGUF holds them")
    scales = packed.scales.repeat_interleave(d_in // BLOCK // packed.scales.shape[1], 1)
    d = scales.half().reshape(-1, 1).view(torch.uint8)
    codes = packed.format.unpack(packed.codes).reshape(-1, BLOCK)
    if packed.format.name == "int4":
        q = (codes + 8).to(torch.uint8)
        return torch.cat([d, q[:, : BLOCK // 2] | q[:, BLOCK // 2 :] << 4], 1).flatten()
    return torch.cat([d, codes.contiguous().view(torch.uint8)], 1).flatten()
