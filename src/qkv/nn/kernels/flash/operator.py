"""FlashAttention as a custom PyTorch operator with its gradient: `torch.compile` sees a single node."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ....core.graphs import operator
from .setting import KernelSetting


@operator("flash")
def flash(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: list[Tensor],
    tiles: list[Tensor],
    setting: list[int],
    numbers: list[float],
    seed: Tensor,
) -> tuple[Tensor, Tensor]:
    """The output (B, T, H, E) in q's dtype and the log-sum-exp (B, H, T) in fp32.

    `numbers` are scale, soft-cap (0: none) and dropout; `setting` has the fields of `KernelSetting`.
    """
    from .launch import Launch

    out, lse = q.new_zeros(*q.shape[:3], v.shape[-1]), _empty_lse(q).fill_(float("-inf"))
    if out.numel() and k.numel():
        Launch(q, k, v, bias, tiles, KernelSetting(*setting), numbers, seed).forward(out, lse)
    return out, lse


@flash.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(*q.shape[:3], v.shape[-1]), _empty_lse(q)


@operator("flash_backward")
def flash_backward(
    out: Tensor,
    lse: Tensor,
    grad_out: Tensor,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: list[Tensor],
    tiles: list[Tensor],
    setting: list[int],
    numbers: list[float],
    seed: Tensor,
) -> list[Tensor]:
    """The gradients of q, k, v and, if it is trained, of the bias's first tensor."""
    from .launch import Launch

    trained = bias[: KernelSetting(*setting).trained]
    if not out.numel() or not k.numel():
        return [torch.zeros_like(x, memory_format=torch.contiguous_format) for x in (q, k, v, *trained)]
    launch = Launch(q, k, v, bias, tiles, KernelSetting(*setting), numbers, seed)
    return launch.backward(out, lse, grad_out, torch.zeros_like(lse) if grad_lse is None else grad_lse)


@flash_backward.register_fake
def _(*inputs: Any) -> list[Tensor]:
    q, k, v, bias, _, setting = inputs[4:10]
    return [x.new_empty(x.shape) for x in (q, k, v, *bias[: KernelSetting(*setting).trained])]


def _empty_lse(q: Tensor) -> Tensor:
    return q.new_empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, bias, tiles, ctx.setting, ctx.numbers, seed = inputs
    ctx.save_for_backward(*output, q, k, v, seed, *bias, *tiles)
    ctx.n_bias = len(bias)


def _gradients(ctx: Any, grad_out: Tensor, grad_lse: Tensor | None) -> tuple[Any, ...]:
    out, lse, q, k, v, seed, *more = ctx.saved_tensors
    bias, tiles = more[: ctx.n_bias], more[ctx.n_bias :]
    grads = flash_backward(out, lse, grad_out, grad_lse, q, k, v, bias, tiles, ctx.setting, ctx.numbers, seed)
    d_bias = [*grads[3:], *[None] * (len(bias) - len(grads[3:]))]
    return (*grads[:3], d_bias, [None] * len(tiles), None, None, None)


flash.register_autograd(_gradients, setup_context=_setup)
