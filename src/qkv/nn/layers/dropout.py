"""Dropout, several times faster than PyTorch's on CPUs, and stochastic depth (drop path)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from ...core.layout import Layout
from ..kernels.plain import in_forward_mode
from ..patterns.documents import document_numbers

_LEVELS = 1 << 16  # probabilities are multiples of 1/65536: 16 random bits for each element


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Zero each element with probability p and multiply the others by 1/(1 − p) (Srivastava et al. 2014).

    On CPUs PyTorch draws 53 random bits for every element sequentially, which in a small model costs a third as much as its
    matrix products. Here one 64-bit draw serves four elements, and backward keeps one byte per element instead of four.
    p is rounded to a multiple of 2⁻¹⁶, and the scale uses the rounded p. Draws come from PyTorch's default generator, so
    seeding, resuming and activation checkpointing work as usual. On other devices, and in compiled graphs, this is
    `torch.nn.functional.dropout`.
    """
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling() or in_forward_mode(x):
        return F.dropout(x, p)
    out: Tensor = _Dropout.apply(x, round(p * _LEVELS))
    return out


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dropped: int) -> Tensor:
        n = x.numel()
        draws = torch.empty((n + 3) // 4, dtype=torch.int64, device=x.device).random_(-(1 << 63), None)
        keep = (draws.view(torch.int16)[:n] >= dropped - (_LEVELS >> 1)).view(x.shape)  # False with dropped / 65536
        ctx.save_for_backward(keep)
        ctx.scale = _LEVELS / max(_LEVELS - dropped, 1)
        return (x * keep).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return (grad * keep).mul_(ctx.scale), None


def stochastic_depth(y: Float[Tensor, "B T M"], p: float, layout: Layout) -> Float[Tensor, "B T M"]:
    """Zero the output of a branch with probability p for each sample, and multiply it by 1/(1 − p) for the others.

    A sample is a row, or a document of a packed row. Scaling up in training replaces scaling down in evaluation (Huang et
    al. 2016, who drop a branch for the whole batch). Draws come from the default generator.
    """
    document = document_numbers(layout)
    draws = torch.rand(len(y), 1 if document is None else y.shape[1], device=y.device)
    draws = draws if document is None else draws.gather(1, document.expand(len(y), -1))
    return y * (draws >= p).to(y.dtype).div_(1 - p)[..., None]
