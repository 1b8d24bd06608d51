"""Numbers from the k-quants of GGUF, bit for bit as llama.cpp's reference: q2_K, q3_K, q4_K, q5_K, q6_K. They are only read.

A block of 256 numbers has one scale d in fp16, and d_min if there are least values. It is divided into 8 groups of 32
or 16 groups of 16, each with a small integer scale s (and least value m):

    q2_K, q4_K, q5_K   x = d s q − d_min m       q3_K, q6_K   x = d s q, q signed

Groups and numbers are interleaved: a byte holds numbers of several groups, so one SIMD shift takes them apart.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def _half(two: Tensor) -> Tensor:
    return two.contiguous().view(torch.float16).float()


def _shifted(packed: Tensor, shifts: tuple[int, ...], run: int, mask: int) -> Tensor:
    """Bytes (n, bytes) in runs of `run`, each run once for every shift and masked: (n, numbers)."""
    by = torch.tensor(shifts, dtype=torch.uint8)[:, None]
    return ((packed.unflatten(1, (-1, 1, run)) >> by) & mask).flatten(1)


def _of_groups(values: Tensor, per_group: Tensor) -> Tensor:
    """Numbers (n, 256) as (n, groups, numbers), with as many groups as `per_group` has."""
    return values.unflatten(1, (per_group.shape[1], -1))


def products(signed: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Callable[[Tensor], Tensor]:
    """The reader of a type whose numbers are integers times the scale of their group."""

    def read(blocks: Tensor) -> Tensor:
        q, scale = signed(blocks)
        return (scale[..., None] * _of_groups(q.float(), scale)).flatten(1)

    return read


def _read_q2_k(blocks: Tensor) -> Tensor:
    scales, packed, d, d_min = blocks[:, :16], blocks[:, 16:80], _half(blocks[:, 80:82]), _half(blocks[:, 82:84])
    q = _shifted(packed, (0, 2, 4, 6), 32, 3).float()
    scale, least = d * (scales & 15).float(), d_min * (scales >> 4).float()
    return (scale[..., None] * _of_groups(q, scale) - least[..., None]).flatten(1)


def _signed_q3_k(blocks: Tensor) -> tuple[Tensor, Tensor]:
    high, packed, scales, d = blocks[:, :32], blocks[:, 32:96], blocks[:, 96:108], _half(blocks[:, 108:110])
    low_bits, high_bits = _shifted(scales[:, :8], (0, 4), 8, 15), _shifted(scales[:, 8:], (0, 2, 4, 6), 4, 3)
    scale = d * ((low_bits | (high_bits << 4)).to(torch.int8) - 32).float()
    q = _shifted(packed, (0, 2, 4, 6), 32, 3).to(torch.int8)
    q = q - ((_shifted(high, tuple(range(8)), 32, 1) ^ 1) << 2).to(torch.int8)  # a bit that isn't set subtracts 4
    return q, scale


def _scales_and_least(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and least values (n, 8), of 6 bits each, from 12 bytes: two sets of four whole ones with the upper bits of the
    others on top, and the lower bits of those."""
    a, b, both = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scale = torch.cat([a & 63, (both & 15) | ((a >> 2) & 48)], 1)
    least = torch.cat([b & 63, (both >> 4) | ((b >> 2) & 48)], 1)
    return scale.float(), least.float()


def _read_q4_k(blocks: Tensor) -> Tensor:
    scale, least = _scales_and_least(blocks[:, 4:16])
    scale, least = _half(blocks[:, :2]) * scale, _half(blocks[:, 2:4]) * least
    q = _shifted(blocks[:, 16:], (0, 4), 32, 15).float()
    return (scale[..., None] * _of_groups(q, scale) - least[..., None]).flatten(1)


def _read_q5_k(blocks: Tensor) -> Tensor:
    scale, least = _scales_and_least(blocks[:, 4:16])
    scale, least = _half(blocks[:, :2]) * scale, _half(blocks[:, 2:4]) * least
    fifth = _shifted(blocks[:, 16:48], tuple(range(8)), 32, 1)
    q = (_shifted(blocks[:, 48:], (0, 4), 32, 15) | (fifth << 4)).float()
    return (scale[..., None] * _of_groups(q, scale) - least[..., None]).flatten(1)


def _signed_q6_k(blocks: Tensor) -> tuple[Tensor, Tensor]:
    low, high = _shifted(blocks[:, :128], (0, 4), 64, 15), _shifted(blocks[:, 128:192], (0, 2, 4, 6), 32, 3)
    scale = _half(blocks[:, 208:210]) * blocks[:, 192:208].contiguous().view(torch.int8).float()
    return (low | (high << 4)).to(torch.int8) - 32, scale


SIGNED_K: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {"q3_k": _signed_q3_k, "q6_k": _signed_q6_k}
"""Blocks as bytes (n, size) → integers in int8 (n, 256) and scales in fp32 (n, 16)."""
K_QUANTS: dict[str, Callable[[Tensor], Tensor]] = {
    "q2_k": _read_q2_k,
    "q3_k": products(_signed_q3_k),
    "q4_k": _read_q4_k,
    "q5_k": _read_q5_k,
    "q6_k": products(_signed_q6_k),
}
"""Blocks as bytes (n, size) → numbers (n, 256), by the type's name."""
