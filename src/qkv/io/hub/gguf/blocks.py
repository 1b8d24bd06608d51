"""Numbers from the quantized blocks of GGUF and back, bit for bit as llama.cpp's reference: q8_0, q4_0, q4_1, q5_0, q5_1.

A row is cut into blocks of 32 numbers x, each with a scale d (and a least value m) in fp16:

    q8_0  x ≈ d q,      q = round(x / d) in −127 … 127,   d = max|x| / 127
    q4_0  x ≈ d (q − 8),  q in 0 … 15,                    d = x* / −8, x* the number of the largest magnitude
    q4_1  x ≈ d q + m,    q in 0 … 15,                    d = (max − m) / 15, m = min x
    q5_0, q5_1            the same with 5 bits:           d = x* / −16, d = (max − m) / 31

q is found with the scale in fp32, before it is rounded to fp16. In a byte of 4-bit numbers the low half is one of the first
16 of the block and the high half one of the last 16; fifth bits stand apart, as one 32-bit mask. `k_quants.py` has the types
with blocks of 256, which are only read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .block_types import BlockType
from .k_quants import K_QUANTS, SIGNED_K, products

QK = 32
PIECE = 1 << 22  # numbers that are computed at once, so temporary tensors stay small
_PLAIN = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}


def dtype_of(kind: BlockType) -> torch.dtype:
    """The dtype of numbers of a type; quantized ones are computed in fp32. Raises ValueError for a type that isn't read."""
    if kind.name in _PLAIN:
        return _PLAIN[kind.name]
    if kind.name in READERS:
        return torch.float32
    raise ValueError(
        f"numbers of the type {kind.name} are not read here; there are {', '.join([*_PLAIN, *READERS])}. "
        "Take another file of the model, or requantize it with llama.cpp's llama-quantize"
    )


def dequantize(data: Tensor, kind: BlockType, shape: Sequence[int]) -> Tensor:
    """The numbers that bytes stand for: in the dtype of the file if it stores them plainly, else in fp32."""
    if kind.name in _PLAIN:
        itemsize = _PLAIN[kind.name].itemsize
        aligned = data if data.data_ptr() % itemsize == 0 else data.clone()
        return aligned.view(_PLAIN[kind.name]).view(*shape)
    blocks, read = data.view(-1, kind.size), READERS[kind.name]
    out = torch.empty(len(blocks), kind.width)
    step = max(PIECE // kind.width, 1)
    for begin in range(0, len(blocks), step):
        out[begin : begin + step] = read(blocks[begin : begin + step])
    return out.view(*shape)


def quantize(x: Tensor, kind: BlockType) -> Tensor:
    """The bytes of a tensor in a type; rows of a quantized type are whole blocks. Raises ValueError if they aren't."""
    x = x.detach().contiguous()
    if kind.name in _PLAIN:
        return x.to(_PLAIN[kind.name]).contiguous().view(-1).view(torch.uint8)
    if x.shape[-1] % kind.width:
        raise ValueError(f"rows of {x.shape[-1]} numbers are no whole blocks of {kind.name}, which have {kind.width}")
    blocks, write = x.reshape(-1, kind.width), WRITERS[kind.name]
    step = max(PIECE // kind.width, 1)
    pieces = [write(blocks[i : i + step].float()) for i in range(0, len(blocks), step)]
    return torch.cat(pieces).view(-1)


# -- reading ------------------------------------------------------------------------------------------------------------


def half(two: Tensor) -> Tensor:
    """Scales (n, 1) in fp32 of bytes (n, 2)."""
    return two.contiguous().view(torch.float16).float()


def nibbles(packed: Tensor) -> Tensor:
    """The low halves of bytes (n, 16), then the high ones: (n, 32)."""
    return torch.cat([packed & 15, packed >> 4], -1)


def _fifth_bits(mask: Tensor) -> Tensor:
    """The bits of masks (n, 4), the lowest first: (n, 32), each 0 or 16."""
    bits = torch.arange(8, dtype=torch.uint8)
    return ((mask[:, :, None] >> bits) & 1).flatten(1) << 4


def _signed_q8_0(blocks: Tensor) -> tuple[Tensor, Tensor]:
    return blocks[:, 2:].contiguous().view(torch.int8), half(blocks[:, :2])


def _signed_q4_0(blocks: Tensor) -> tuple[Tensor, Tensor]:
    return nibbles(blocks[:, 2:]).to(torch.int8) - 8, half(blocks[:, :2])


def _read_q4_1(blocks: Tensor) -> Tensor:
    return half(blocks[:, :2]) * nibbles(blocks[:, 4:]).float() + half(blocks[:, 2:4])


def _signed_q5_0(blocks: Tensor) -> tuple[Tensor, Tensor]:
    q = nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])
    return q.to(torch.int8) - 16, half(blocks[:, :2])


def _read_q5_1(blocks: Tensor) -> Tensor:
    q = nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    return half(blocks[:, :2]) * q.float() + half(blocks[:, 2:4])


SIGNED: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "q8_0": _signed_q8_0,
    "q4_0": _signed_q4_0,
    "q5_0": _signed_q5_0,
    **SIGNED_K,
}
"""Blocks as bytes (n, size) → int8 (n, width) and scales in fp32 (n, groups), of the types without least values."""
READERS: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: products(read) for name, read in SIGNED.items()},
    "q4_1": _read_q4_1,
    "q5_1": _read_q5_1,
    **K_QUANTS,
}
"""Blocks as bytes (n, size) → numbers (n, width), by the type's name."""


# -- writing ------------------------------------------------------------------------------------------------------------


def _inverse(d: Tensor) -> Tensor:
    return torch.where(d == 0, 0.0, 1 / d)


def _bytes(half_numbers: Tensor) -> Tensor:
    return half_numbers.half().contiguous().view(torch.uint8)


def _packed(q: Tensor) -> Tensor:
    return (q[:, :16] & 15) | (q[:, 16:] << 4)


def _mask(q: Tensor) -> Tensor:
    """The fifth bits of numbers (n, 32) as masks (n, 4)."""
    bits = (q >> 4).view(-1, 4, 8) << torch.arange(8, dtype=torch.uint8)
    return bits.sum(-1, dtype=torch.uint8)


def _write_q8_0(x: Tensor) -> Tensor:
    d = x.abs().amax(-1, keepdim=True) / 127
    y = x * _inverse(d)
    whole = y.abs().floor()
    q = torch.sign(y) * (whole + (2 * (y.abs() - whole)).floor())  # halves away from zero, as C's roundf
    return torch.cat([_bytes(d), q.to(torch.int8).view(torch.uint8)], -1)


def _from_largest(x: Tensor, least: int) -> tuple[Tensor, Tensor]:
    """Scale and numbers 0 … 2·least − 1, where the number of the largest magnitude becomes 0."""
    largest = x.gather(-1, x.abs().argmax(-1, keepdim=True))
    d = largest / -least
    q = (x * _inverse(d) + (least + 0.5)).trunc().clamp(0, 2 * least - 1)
    return d, q.to(torch.uint8)


def _from_least(x: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scale, least value and numbers 0 … steps."""
    least, largest = x.aminmax(dim=-1, keepdim=True)
    d = (largest - least) / steps
    q = ((x - least) * _inverse(d) + 0.5).trunc().clamp(0, steps)
    return d, least, q.to(torch.uint8)


def _write_q4_0(x: Tensor) -> Tensor:
    d, q = _from_largest(x, 8)
    return torch.cat([_bytes(d), _packed(q)], -1)


def _write_q4_1(x: Tensor) -> Tensor:
    d, least, q = _from_least(x, 15)
    return torch.cat([_bytes(d), _bytes(least), _packed(q)], -1)


def _write_q5_0(x: Tensor) -> Tensor:
    d, q = _from_largest(x, 16)
    return torch.cat([_bytes(d), _mask(q), _packed(q)], -1)


def _write_q5_1(x: Tensor) -> Tensor:
    d, least, q = _from_least(x, 31)
    return torch.cat([_bytes(d), _bytes(least), _mask(q), _packed(q)], -1)


WRITERS: dict[str, Callable[[Tensor], Tensor]] = {
    "q8_0": _write_q8_0,
    "q4_0": _write_q4_0,
    "q4_1": _write_q4_1,
    "q5_0": _write_q5_0,
    "q5_1": _write_q5_1,
}
