"""Low-rank factorization of a trained model: matrices W of attention and feed-forward layers become products U V."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from ...core.batch import Batch
from ..attention.mixer import Pass
from ..layers.linear import Linear
from ..layers.low_rank import LowRankLinear, factors, matrix_size, plain
from ..models.transformer import Transformer, TransformerModel
from .remove import rebuilt, tensors_of
from .units import running_passes

Matrix = Linear | LowRankLinear
Rank = int | float
"""A rank, or as a float below 1 a share: the rank at which a product has this share of the parameters of its matrix."""


def matrices(model: TransformerModel) -> dict[str, Matrix]:
    """Return the layers that can be factorized, or are, by their paths: projections of attention, and the matrices of plain
    feed-forward layers. Experts of a mixture, embeddings and heads are not among them."""
    modules = dict(model.named_modules())
    layers = {f"{path}.{name}": modules.get(f"{path}.{name}") for path, names in _places(model.spec) for name in names}
    return {path: layer for path, layer in layers.items() if isinstance(layer, Matrix)}


def _places(spec: Transformer) -> list[tuple[str, tuple[str, ...]]]:
    """The paths of sublayers whose spec has `low_rank`, with the names of their matrices."""
    return [
        (path, tuple(type(part.low_rank).model_fields))
        for path, part in spec.walk()
        if hasattr(part, "low_rank") and path.count(".") == 3  # not of a mixture's shared layer
    ]


def ranks_of(model: TransformerModel, rank: Rank) -> dict[str, int]:
    """Return the rank of each matrix that gets fewer parameters by `rank`, by its path.

    Raises ValueError for a rank that saves nothing, or if no matrix can be factorized.
    """
    if rank <= 0 or (isinstance(rank, float) and rank >= 1):
        raise ValueError(f"rank must be at least 1, or a share above 0 and below 1 (such as 50%), not {rank}")
    layers = matrices(model)
    if not layers:
        raise ValueError("this model has no attention or plain feed-forward layer whose matrices can be factorized")
    limits = {path: _smaller(layer) for path, layer in layers.items()}
    ranks = {path: _rank(layer, rank) for path, layer in layers.items() if _rank(layer, rank) <= limits[path]}
    if not ranks:
        most = max(limits.values())
        advice = f"take {most} or less" if most else "its matrices are too small to be factorized"
        raise ValueError(f"a rank of {rank} saves nothing, as U V would have no fewer parameters than W; {advice}")
    return ranks


def _rank(layer: Matrix, rank: Rank) -> int:
    if isinstance(rank, int):
        return rank
    return max(1, math.floor(rank * layer.in_features * layer.out_features / (layer.in_features + layer.out_features)))


def _smaller(layer: Matrix) -> int:
    """The largest rank at which a product has fewer parameters than the layer has now; 0 if there is none."""
    rank = layer.rank if isinstance(layer, LowRankLinear) else None
    return (matrix_size(layer.in_features, layer.out_features, rank) - 1) // (layer.in_features + layer.out_features)


def factorize(
    model: TransformerModel, ranks: Mapping[str, int], covariances: Mapping[str, Tensor] | None = None
) -> TransformerModel:
    """Return a model with products U V of these ranks in place of the matrices at these paths; `model` is unchanged.

    Without `covariances` of the layers' inputs (`input_covariances`), the products are nearest to the matrices; with them,
    the outputs are nearest to what they were. See `layers.low_rank.factors`.
    """
    layers, state, changes = matrices(model), tensors_of(model), dict[str, Any]()
    for path, rank in ranks.items():
        weight = plain(layers[path]).weight
        u, v = factors(weight, rank, None if covariances is None else covariances[path])
        bias = _without(state, path)
        state |= {f"{path}.expand.weight": u, f"{path}.reduce.weight": v}
        state |= {} if bias is None else {f"{path}.expand.bias": bias}
        sublayer, _, name = path.rpartition(".")
        changes[f"{sublayer}.low_rank.{name}"] = rank
    return rebuilt(model, model.spec.replace(changes), state)


def multiplied_out(model: TransformerModel) -> TransformerModel:
    """Return the model with the full matrix U V in place of each product; the model itself if it has none."""
    products = {path: layer for path, layer in matrices(model).items() if isinstance(layer, LowRankLinear)}
    if not products:
        return model
    state = tensors_of(model)
    for path, layer in products.items():
        bias = _without(state, path)
        state |= {f"{path}.weight": layer.plain().weight.detach()} | ({} if bias is None else {f"{path}.bias": bias})
    return rebuilt(model, with_full_matrices(model.spec), state)


def with_full_matrices(spec: Transformer) -> Transformer:
    """Return the spec without ranks."""
    return spec.replace({f"{path}.low_rank": {} for path, _ in _places(spec)})


def _without(state: dict[str, Tensor], path: str) -> Tensor | None:
    """Take a layer's tensors out of a state, and return its bias."""
    own = {name: state.pop(name) for name in list(state) if name.startswith(f"{path}.")}
    return next((tensor for name, tensor in own.items() if name.endswith(".bias")), None)


class _Covariance:
    """E[x xᵀ] of a layer's inputs x over the tokens that are no padding."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.sum, self.count = torch.zeros(size, size, device=device), 0

    def add(self, x: Tensor, valid: Tensor) -> None:
        tokens = x[valid.expand(x.shape[:2])].float()
        self.sum += tokens.T @ tokens
        self.count += len(tokens)

    def mean(self) -> Tensor:
        return self.sum / max(self.count, 1)


@torch.no_grad()
def input_covariances(
    model: TransformerModel,
    paths: Iterable[str],
    batches: Iterable[Batch],
    loss: Callable[[nn.Module, Batch], object],
) -> dict[str, Tensor]:
    """Return E[x xᵀ] over the inputs x of some layers, by their paths, in passes that compute `loss` of each batch."""
    layers = matrices(model)
    sums = {path: _Covariance(layers[path].in_features, model.device) for path in paths}
    training = model.training
    with running_passes(model) as running, ExitStack() as hooks:
        for path, covariance in sums.items():
            hooks.callback(layers[path].register_forward_pre_hook(_adds(covariance, path, running)).remove)
        model.eval()
        for batch in batches:
            loss(model, batch)
    model.train(training)
    return {path: covariance.mean() for path, covariance in sums.items()}


def _adds(covariance: _Covariance, path: str, running: Mapping[str, Pass]) -> Callable[..., None]:
    stack, of_memory = path.partition(".")[0], path.endswith((".cross.k", ".cross.v"))

    def add(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        run = running[stack]
        layout = run.memory_layout if of_memory else run.layout
        assert layout is not None
        covariance.add(inputs[0], layout.valid)

    return add
