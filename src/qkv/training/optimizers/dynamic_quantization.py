"""Numbers in eight bits: block-wise dynamic quantization (Dettmers et al. 2022), on plain PyTorch."""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional as F


@cache
def code(signed: bool, device: str = "cpu") -> Float[Tensor, "256"]:
    """The 256 numbers in [−1, 1], or [0, 1], that a byte can stand for, in order.

    Seven decades below 1, each with twice the numbers of the one below it, in the middles of its equal parts; and 0 and
    1. The uppermost has 64 of them, 128 if there is no sign (Dettmers et al. 2022, section 2.2).
    """
    values = [0.0, 1.0]
    for i in range(7):
        edges = torch.linspace(0.1, 1.0, 2 ** (i if signed else i + 1) + 1, dtype=torch.float64)
        middles = (10.0 ** (i - 6) * (edges[:-1] + edges[1:]) / 2).tolist()
        values += [*middles, *(-m for m in middles)] if signed else middles
    return torch.tensor(sorted(values), dtype=torch.float32, device=device)


@cache
def _nearest(signed: bool, device: str) -> UInt8[Tensor, "65536"]:
    """The byte of the nearest code for the upper 16 bits of a float32, which are a bfloat16.

    One look-up instead of a search among 256. Halfway between two codes it may take the other of the two.
    """
    upper = torch.arange(65536, dtype=torch.int32)
    middle = ((upper << 16) | 0x8000).view(torch.float32).nan_to_num(0.0, 1.0, -1.0)
    codes = code(signed)
    borders = (codes[1:] + codes[:-1]) / 2
    if not signed:
        borders[0] = 0.0  # only 0 becomes 0: a second moment divides
    table = torch.bucketize(middle, borders).to(torch.uint8)
    table[upper & 0x7FFF == 0] = int((codes == 0).nonzero())
    return table.to(device)


def quantize(x: Float[Tensor, "N"], block: int, signed: bool) -> tuple[UInt8[Tensor, "N"], Float[Tensor, "K"]]:
    """Bytes, and each block's largest absolute value, by which its numbers were divided. K = ⌈N / block⌉."""
    blocks = _blocks(x, block)
    largest = blocks.abs().amax(1)
    parts = blocks / largest.clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(1)
    upper = (parts.view(torch.int32) >> 16) & 0xFFFF
    return _nearest(signed, str(x.device)).index_select(0, upper.flatten()[: x.numel()]), largest


def dequantize(values: UInt8[Tensor, "N"], largest: Float[Tensor, "K"], block: int, signed: bool) -> Float[Tensor, "N"]:
    """What `quantize` took, to about 1 part in 130 if it is near its block's largest."""
    blocks = _blocks(code(signed, str(values.device)).index_select(0, values.int()), block)
    return (blocks * largest.unsqueeze(1)).flatten()[: values.numel()]


def _blocks(x: Float[Tensor, "N"], block: int) -> Float[Tensor, "K block"]:
    """Rows of one block each, the last filled up with zeros."""
    missing = -x.numel() % block
    return (F.pad(x, (0, missing)) if missing else x).view(-1, block)
