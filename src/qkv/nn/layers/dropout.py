"""Dropout by a mask computed from a seed, several times faster than PyTorch's on CPUs, and stochastic depth (drop path)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.nn import functional as F

from ...core.graphs import operator
from ...core.layout import Layout
from ...core.ranks import current_rows
from ..kernels.native import dropout as native
from ..kernels.native.dropout import DropoutMask, draw_seed, levels
from ..kernels.plain import is_eager
from ..patterns.documents import current_places, document_numbers


def dropout(x: Tensor, p: float, training: bool = True, added: Tensor | None = None) -> Tensor:
    """Zero each element with probability p, and multiply the others by 1/(1 − p) (Srivastava et al. 2014). Return the sum
    with `added` if it is given.

    On CPUs the mask is a function of a seed, drawn from PyTorch's default generator, and of the place of an element
    (document, token, channel): see `DropoutMask`. It does not depend on threads, padding, packing, recomputation or the rank
    that has the element. The backward pass computes it again instead of storing it. Mixtures of experts and LSH attention
    reorder tokens, so their masks depend on the batch and on the ranks. p is rounded to a multiple of 2⁻¹⁶, and the scale
    uses the rounded p. On other devices, in compiled graphs and under `torch.func`, this is
    `torch.nn.functional.dropout`, whose masks depend on all of these.
    """
    if not training or p == 0.0:
        return x if added is None else added + x
    if x.device.type == "cpu" and x.numel():
        if is_eager(x):
            out: Tensor = _Dropout.apply(x, added, DropoutMask(int(draw_seed()), levels(p)))
            return out
        if isinstance(x, FakeTensor) and not torch.compiler.is_compiling():
            traced: Tensor = _dropout(x, added, draw_seed(), levels(p), _dtype_of(x, added))
            return traced
    return F.dropout(x, p) if added is None else added + F.dropout(x, p)


def dropout_of_vectors(x: Float[Tensor, "B M"], p: float, training: bool = True) -> Float[Tensor, "B M"]:
    """Apply `dropout` to one vector for each row of the batch."""
    return dropout(x[:, None], p, training)[:, 0] if training and p else x


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, added: Tensor | None, mask: DropoutMask) -> Tensor:
        ctx.mask, ctx.dtypes = mask, (x.dtype, None if added is None else added.dtype)
        return _masked(x, added, mask, _dtype_of(x, added))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        own, of_added = ctx.dtypes
        again = torch.is_grad_enabled()  # the gradient is to be differentiated again
        d_x = _Dropout.apply(grad, None, ctx.mask).to(own) if again else _masked(grad, None, ctx.mask, own)
        return d_x, None if of_added is None else grad.to(of_added), None


def _masked(x: Tensor, added: Tensor | None, mask: DropoutMask, dtype: torch.dtype) -> Tensor:
    """`added` + mask ∘ x in a dtype."""
    fits = added is None or (added.dtype == dtype and added.shape == x.shape)
    fits = fits and native.DTYPES.issuperset((x.dtype, dtype)) and mask.whole_chunks
    if fits and native.ready():
        added = None if added is None else added.contiguous()
        return native.run(x.contiguous(), added, mask, dtype)
    kept = torch.where(mask.numbers(x.shape, x.device), x * mask.grown, 0.0)
    return (kept if added is None else added + kept).to(dtype)


def _dtype_of(x: Tensor, added: Tensor | None) -> torch.dtype:
    return x.dtype if added is None else torch.promote_types(x.dtype, added.dtype)


@operator("dropout")
def _dropout(x: Tensor, added: Tensor | None, seed: Tensor, dropped: int, dtype: torch.dtype) -> Tensor:
    """`_Dropout` for tensors without contents, whose memory counts as that of others."""
    return _masked(x, added, DropoutMask(int(seed), dropped), dtype)


@_dropout.register_fake
def _(x: Tensor, added: Tensor | None, seed: Tensor, dropped: int, dtype: torch.dtype) -> Tensor:
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, added, seed, ctx.dropped, _ = inputs
    ctx.save_for_backward(seed)
    ctx.dtypes = x.dtype, None if added is None else added.dtype


def _gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    own, of_added = ctx.dtypes
    d_added = None if of_added is None else grad.to(of_added)
    return _dropout(grad, None, ctx.saved_tensors[0], ctx.dropped, own), d_added, None, None, None


_dropout.register_autograd(_gradients, setup_context=_setup)


def own_draws(device: torch.device) -> torch.Generator | None:
    """Return a generator for random numbers that must differ between ranks; None if the default generator does.

    On CPUs the default generators of all ranks have the same state, because dropout masks depend on the places of tokens.
    """
    if torch.compiler.is_compiling() or device.type != "cpu":
        return None
    rows, places = current_rows(), current_places()
    part = 0 if places is None else places.part
    if rows.size == 1 and not part:
        return None
    return torch.Generator().manual_seed(int(draw_seed()) + rows.rank + rows.size * part)


def stochastic_depth(y: Float[Tensor, "B T M"], p: float, layout: Layout) -> Float[Tensor, "B T M"]:
    """Zero the output of a branch with probability p for each sample, and multiply it by 1/(1 − p) for the others.

    A sample is a row, or a document of a packed row. Scaling up in training replaces scaling down in evaluation (Huang et
    al. 2016, who drop a branch for the whole batch). Draws come from the default generator.
    """
    document = document_numbers(layout)
    shape = len(y), 1 if document is None else y.shape[1]
    draws = torch.rand(shape, device=y.device, generator=own_draws(y.device))
    draws = draws if document is None else draws.gather(1, document.expand(len(y), -1))
    return y * (draws >= p).to(y.dtype).div_(1 - p)[..., None]
