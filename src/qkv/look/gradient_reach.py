"""Gradient norms over distance: how the last state depends on each earlier token (Bengio, Simard & Frasconi 1994)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..core.layout import Layout
from ..core.several import worded
from ..nn.attention.own_calls import hooked
from ..nn.models.recurrent.model import RecurrentModel
from ..nn.models.stack import StackModule
from ..nn.models.transformer import TransformerModel

PROBES = 8


@worded
def reach(model: nn.Module, ids: Int[Tensor, "B S"], seed: int = 0) -> list[float]:
    """Return ‖∂h_S / ∂x_{S−n}‖ for n = 0 … S − 1: last state by embedding of each token, root mean square over rows.

    The state is that of the encoder, or of a decoder alone, in the direction that ends at the last token. The Frobenius
    norm is estimated by random projections: E ‖vᵀJ‖² = ‖J‖² for v ~ N(0, 1).
    """
    embedded: list[Tensor] = []
    training = model.training
    model.eval()
    try:
        with torch.enable_grad(), hooked([(_embedding(model), lambda module, inputs, out: embedded.append(out))]):
            last = _last(model, ids)
            generator = torch.Generator().manual_seed(seed)
            squares = torch.zeros(ids.shape[1], device=ids.device)
            for _ in range(PROBES):
                probe = torch.randn(last.shape, generator=generator).to(last)
                (gradient,) = torch.autograd.grad((last * probe).sum(), embedded[0], retain_graph=True)
                squares += gradient.float().square().sum(-1).mean(0)
    finally:
        model.train(training)
    norms = (squares / PROBES).sqrt()
    return (norms if _backward(model) else norms.flip(0)).tolist()


def _embedding(model: nn.Module) -> nn.Module:
    return model.source_embedding if isinstance(model, RecurrentModel) else _stack(model).embedding


def _stack(model: nn.Module) -> StackModule:
    stack = (model.encoder or model.decoder) if isinstance(model, TransformerModel) else None
    if stack is None:
        raise ValueError(f"gradients are measured in an encoder or decoder stack, and {type(model).__name__} has none")
    return stack


def _backward(model: nn.Module) -> bool:
    """Whether the source is read from its end, so the recurrence ends at the first token."""
    return isinstance(model, RecurrentModel) and bool(model.spec.reverse)


def _last(model: nn.Module, ids: Tensor) -> Float[Tensor, "B M"]:
    layout = Layout.full(ids.shape[1], device=ids.device)
    if isinstance(model, RecurrentModel):
        states = model.read(ids, layout).states[..., : model.spec.d_h]
    else:
        states = _stack(model)(ids, layout)
    return states[:, 0] if _backward(model) else states[:, -1]
