"""Mixtures of experts in a traced graph, where the router's choice may not decide any size that is known beforehand.

Two ways, with equal results:

    by choice   each expert multiplies the tokens that chose it, as many as there are: their number is a size that the graph
                finds out while it runs. ONNX and `torch.export` can say that.
    every       each expert multiplies all tokens, and the gates of those that did not choose it are 0: n_experts / top_k
                times the products. AOTInductor packages hold this one, whose sizes don't depend on numbers.
"""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ...nn.layers.moe import ExpertPass, Mixture
from ...nn.layers.quantized.matrix import dense

Model = TypeVar("Model", bound=nn.Module)


def with_traced_experts(model: Model, every: bool = False) -> Model:
    """The model with mixtures that can be traced: a copy that shares the weights, or the model itself if it has none."""
    if not has_experts(model):
        return model
    made = sharing_weights(model)
    for parent in list(made.modules()):
        for name, child in parent.named_children():
            if isinstance(child, Mixture):
                setattr(parent, name, TracedMixture(child, every))
    return made


def has_experts(model: nn.Module) -> bool:
    return any(isinstance(module, Mixture) for module in model.modules())


def sharing_weights(model: Model) -> Model:
    """A copy of the modules with the same parameters and buffers."""
    tensors = (*model.parameters(), *model.buffers())
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


class TracedMixture(nn.Module):
    """A `Mixture` whose experts are separate matrices."""

    takes_pass = True

    def __init__(self, mixture: Mixture, every: bool) -> None:
        super().__init__()
        self.mixture, self.every = mixture, every
        self.gate = None if mixture.gate is None else _matrices(mixture.gate)
        self.up, self.down = _matrices(mixture.up), _matrices(mixture.down)

    def forward(self, x: Float[Tensor, "B T M"], run: ExpertPass | None = None) -> Float[Tensor, "B T M"]:
        rows = x.flatten(0, -2)
        routed = self.mixture.router(rows)
        gates = torch.zeros_like(routed.probabilities).scatter(1, routed.experts, routed.gates)
        chosen = torch.zeros_like(gates, dtype=torch.bool).scatter(1, routed.experts, True)
        if run is not None and run.layout.padding != "none":
            real = run.layout.valid.expand(x.shape[:-1]).flatten()[:, None]
            gates, chosen = gates * real, chosen & real
        out = torch.zeros_like(rows)
        for e in range(len(self.up)):
            gate = gates[:, e, None].to(x.dtype)
            if self.every:
                out = out + gate * self._expert(e, rows)
            else:
                at = chosen[:, e].nonzero()[:, 0]
                own = gate.index_select(0, at) * self._expert(e, rows.index_select(0, at))
                out = out.index_put((at,), own, accumulate=True)
        return self.mixture.add_shared(rows, out).view_as(x)

    def _expert(self, e: int, x: Float[Tensor, "N M"]) -> Float[Tensor, "N M"]:
        activation, hidden = self.mixture.activation, F.linear(x, self.up[e])
        hidden = activation(hidden) if self.gate is None else activation(F.linear(x, self.gate[e])) * hidden
        return F.linear(hidden, self.down[e])


def _matrices(layer: nn.Module) -> nn.ParameterList:
    """The matrix of each expert: parts of the layer's weight, not copies."""
    weight = dense(layer.weight).detach()
    return nn.ParameterList(nn.Parameter(matrix, requires_grad=False) for matrix in weight)
