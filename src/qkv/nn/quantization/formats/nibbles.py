"""Two codes of 4 bits in a byte: that of an even column in the lower half, that of the next in the upper."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def pack(codes: Tensor) -> Tensor:
    """Return uint8 codes 0 … 15 (…, n) as bytes (…, n/2)."""
    return codes[..., ::2] | codes[..., 1::2] << 4


def unpack(data: Tensor) -> Tensor:
    """Undo `pack`."""
    out = data.new_empty(*data.shape[:-1], 2 * data.shape[-1])
    out[..., ::2] = data & 15
    out[..., 1::2] = data >> 4
    return out


def look_up(codes: Tensor, levels: Sequence[float]) -> Tensor:
    """Return the value of each code, in fp32."""
    return torch.tensor(levels, device=codes.device).index_select(0, codes.flatten().int()).view(codes.shape)
