"""How far a gradient reaches: what a token's state owes to each token before it (Bengio, Simard & Frasconi 1994)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..core.layout import Layout
from ..models.recurrent.model import RecurrentModel
from ..models.stack import StackModule
from ..models.transformer import TransformerModel

PROBES = 8


def reach(model: nn.Module, ids: Int[Tensor, "B S"], seed: int = 0) -> list[float]:
    """‖∂h_S / ∂x_{S−n}‖ for n = 0 … S − 1, of the last token's state by each token's embedding, root mean square over rows.

    The state is the encoder's (a decoder's where that is all there is), of the direction that ends there. The norm is
    Frobenius', estimated by some random projections: E ‖vᵀJ‖² = ‖J‖² for v ~ N(0, 1).
    """
    kept: list[Tensor] = []
    embedding = _embedding(model)
    handle = embedding.register_forward_hook(lambda module, given, out: kept.append(out))
    training = model.training
    model.eval()
    try:
        with torch.enable_grad():
            last = _last(model, ids)
            generator = torch.Generator().manual_seed(seed)
            squares = torch.zeros(ids.shape[1], device=ids.device)
            for _ in range(PROBES):
                probe = torch.randn(last.shape, generator=generator).to(last)
                (gradient,) = torch.autograd.grad((last * probe).sum(), kept[0], retain_graph=True)
                squares += gradient.float().square().sum(-1).mean(0)
    finally:
        handle.remove()
        model.train(training)
    norms = (squares / PROBES).sqrt()
    return (norms if _backward(model) else norms.flip(0)).tolist()


def _embedding(model: nn.Module) -> nn.Module:
    return model.source_embedding if isinstance(model, RecurrentModel) else _stack(model).embedding


def _stack(model: nn.Module) -> StackModule:
    found = (model.encoder or model.decoder) if isinstance(model, TransformerModel) else None
    if found is None:
        raise ValueError(f"{type(model).__name__} has no encoder or decoder whose gradients could be followed")
    return found


def _backward(model: nn.Module) -> bool:
    """Whether the source is read from its end, so that the last token is the first one."""
    return isinstance(model, RecurrentModel) and model.encoder.reverse


def _last(model: nn.Module, ids: Tensor) -> Float[Tensor, "B M"]:
    layout = Layout.full(ids.shape[1], device=ids.device)
    if isinstance(model, RecurrentModel):
        states = model.read(ids, layout).states[..., : model.spec.d_h]
    else:
        states = _stack(model)(ids, layout)
    return states[:, 0] if _backward(model) else states[:, -1]
