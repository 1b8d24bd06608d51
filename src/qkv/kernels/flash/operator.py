"""FlashAttention as a custom operator of PyTorch's with its gradient: `torch.compile` sees a single node."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .setting import Setting


@torch.library.custom_op("qkv::flash", mutates_args=())
def flash(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: list[Tensor],
    tiles: list[Tensor],
    setting: list[int],
    scale: float,
    softcap: float,
    dropout: float,
    seed: Tensor,
) -> tuple[Tensor, Tensor]:
    """The output (B, T, H, E) in q's dtype and the log-sum-exp (B, H, T) in fp32."""
    from .launch import Launch

    out, lse = q.new_zeros(*q.shape[:3], v.shape[-1]), _empty_lse(q).fill_(float("-inf"))
    if out.numel() and k.numel():
        Launch(q, k, v, bias, tiles, Setting(*setting), scale, softcap, dropout, seed).forward(out, lse)
    return out, lse


@flash.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(*q.shape[:3], v.shape[-1]), _empty_lse(q)


@torch.library.custom_op("qkv::flash_backward", mutates_args=())
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
    scale: float,
    softcap: float,
    dropout: float,
    seed: Tensor,
) -> list[Tensor]:
    """The gradients of q, k, v and, where it is trained, of the bias's first tensor."""
    from .launch import Launch

    made = Setting(*setting)
    if not out.numel() or not k.numel():
        return [torch.zeros_like(x, memory_format=torch.contiguous_format) for x in (q, k, v, *bias[: made.trained])]
    launch = Launch(q, k, v, bias, tiles, made, scale, softcap, dropout, seed)
    return launch.backward(out, lse, grad_out, torch.zeros_like(lse) if grad_lse is None else grad_lse)


@flash_backward.register_fake
def _(
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
    *_: Any,
) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in (q, k, v, *bias[: Setting(*setting).trained])]


def _empty_lse(q: Tensor) -> Tensor:
    return q.new_empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, bias, tiles, *numbers, seed = inputs
    ctx.save_for_backward(*output, q, k, v, seed, *bias, *tiles)
    ctx.n_bias, ctx.numbers = len(bias), numbers


def _gradients(ctx: Any, grad_out: Tensor, grad_lse: Tensor | None) -> tuple[Any, ...]:
    out, lse, q, k, v, seed, *more = ctx.saved_tensors
    bias, tiles = more[: ctx.n_bias], more[ctx.n_bias :]
    grads = flash_backward(out, lse, grad_out, grad_lse, q, k, v, bias, tiles, *ctx.numbers, seed)
    of_bias = [*grads[3:], *[None] * (len(bias) - len(grads[3:]))]
    return (*grads[:3], of_bias, [None] * len(tiles), *[None] * len(ctx.numbers), None)


flash.register_autograd(_gradients, setup_context=_setup)
