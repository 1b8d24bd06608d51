"""Activations and matrices of every format for the tests of products, and their products in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from qkv.nn.kernels.products.formats import Int4, Int8, Weight


def activations(rows: int, columns: int) -> Tensor:
    """Rows with an outlier."""
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))
    x[:, columns // 3] *= 20
    return x


def matrix(kind: str, outs: int, columns: int, group: int = 32, seed: int = 0) -> Weight:
    random = torch.Generator().manual_seed(seed)
    if kind in ("fp32", "bf16"):
        dense = torch.randn(outs, columns, generator=random)
        return dense if kind == "fp32" else dense.bfloat16()
    scales = torch.rand(outs, columns // group, generator=random) + 0.1
    if kind == "int8":
        return Int8(torch.randint(-128, 128, (outs, columns), dtype=torch.int8, generator=random), scales)
    codes = torch.randint(0, 256, (outs, columns // 2), dtype=torch.uint8, generator=random)
    zeros = 15 * torch.rand(outs, columns // group, generator=random) if kind == "int4 with zeros" else None
    return Int4(codes, scales, zeros)


def exact(x: Tensor, weight: Weight, bias: Tensor | None = None) -> Tensor:
    """The product in float64, code by code."""
    out = x.double() @ floats(weight).T
    return out if bias is None else out + bias.double()


def floats(weight: Weight) -> Tensor:
    """What a matrix stands for, in float64, without the code under test."""
    if isinstance(weight, Tensor):
        return weight.double()
    if isinstance(weight, Int8):
        digits, zeros = weight.codes.double(), None
    else:
        even, odd = weight.codes.double() % 16, weight.codes.double().div(16).floor()
        digits, zeros = torch.stack([even, odd], 2).reshape(len(even), -1), weight.zeros
    group = digits.shape[1] // weight.scales.shape[1]
    spread = torch.arange(digits.shape[1]) // group
    zero = 0.0 if isinstance(weight, Int8) else 8.0 if zeros is None else zeros.double()[:, spread]
    return (digits - zero) * weight.scales.double()[:, spread]


def error(found: Tensor, wanted: Tensor) -> float:
    """Relative error in the Euclidean norm."""
    return ((found.double() - wanted.double()).norm() / wanted.double().norm()).item()
