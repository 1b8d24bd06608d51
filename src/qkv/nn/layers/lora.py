"""LoRA: trained matrices of low rank added to frozen linear layers.

Hu et al. 2021, *LoRA: Low-Rank Adaptation of Large Language Models*, arXiv:2106.09685; the scaling α / √r is by
Kalajdzievski 2023, arXiv:2312.03732.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial, wraps
from typing import Annotated, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.several import shown
from ...core.spec import Spec, brief, nearest
from .dropout import dropout
from .linear import Linear, product, with_weight
from .quantized import QuantizedMatrix, dense, quantized

Model = TypeVar("Model", bound=nn.Module)
P = ParamSpec("P")
R = TypeVar("R")
Patterns = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]


class Adapter(Spec, role="adapter"):
    """Base class of adapters: a few new parameters are trained, and the model's parameters are frozen."""

    def adapt(self, model: nn.Module, seed: int) -> None:
        """Add the adapter to a model, in place, and freeze everything else."""
        raise NotImplementedError(f"{type(self).__name__} does not define adapt()")


class LoRA(Adapter, kind="lora"):
    """y = x (W + s · B A)ᵀ + b with A (rank, d_in), B (d_out, rank) and s = alpha / rank. A and B are trained, W is not.

    layers:          names of linear layers, as shell patterns: `*.attention.[qv]`, `decoder.*`.
    dropout:         of the input of A, in training.
    rank_stabilized: s = alpha / √rank, so large ranks learn as fast as small ones.
    train:           names of other parameters to train, as shell patterns: `*.norm.*`, `*.embedding.weight`.

    A is initialized uniformly in ±1/√d_in and B to 0, so the adapted model computes the same as before at first.
    """

    rank: int = Field(default=8, gt=0)
    alpha: float = Field(default=16.0, gt=0, allow_inf_nan=False)
    layers: Patterns = ("*.blocks.*",)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    rank_stabilized: bool = False
    train: Patterns = ()

    def scale(self, rank: int | None = None, alpha: float | None = None) -> float:
        """Return s, with the rank and alpha of one layer if it has its own."""
        rank, alpha = rank or self.rank, self.alpha if alpha is None else alpha
        return alpha / (math.sqrt(rank) if self.rank_stabilized else rank)

    def adapt(self, model: nn.Module, seed: int) -> None:
        insert(model, self, {name: AdapterSize(self.rank, self.scale()) for name in matching(model, self.layers)}, seed)


class AdapterSize(NamedTuple):
    """Rank and scale s of one layer's adapter."""

    rank: int
    scale: float


class LoRALinear(Linear):
    """A linear layer with its adapter. `weight` and `bias` are the same as in the layer that it replaces: over a quantized
    weight this is QLoRA (Dettmers et al. 2023, arXiv:2305.14314)."""

    def __init__(self, base: Linear, size: AdapterSize, dropped: float = 0.0) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = base.in_features, base.out_features
        self.into_residual, self.into_scores = base.into_residual, base.into_scores
        self.weight, self.bias = base.weight, base.bias
        self.rank, self.scale = size
        self.dropout, self.merged = dropped, False
        device, dtype = self.weight.device, self.weight.dtype
        self.lora_a = nn.Parameter(torch.empty(self.rank, self.in_features, device=device, dtype=dtype))
        self.lora_b = nn.Parameter(torch.zeros(self.out_features, self.rank, device=device, dtype=dtype))
        self.train(base.training)

    def forward(self, x: Tensor) -> Tensor:
        if self.merged:
            return product(x, self.weight, self.bias)
        low = F.linear(dropout(x, self.dropout, self.training), self.lora_a)
        y = product(x, self.weight, self.bias)
        out = torch.addmm(y.reshape(-1, self.out_features), low.reshape(-1, self.rank), self.lora_b.T, alpha=self.scale)
        return out.view_as(y)

    @torch.no_grad()
    def delta(self) -> Tensor:
        """Return s · B A, of the shape of W, in fp32 or wider."""
        return self.scale * (_wide(self.lora_b) @ _wide(self.lora_a))

    @torch.no_grad()
    def plain(self) -> Linear:
        """Return a plain linear layer that computes the same, with the weight W + s · B A; a quantized W is dequantized."""
        base = dense(self.weight).detach()
        return with_weight(self, nn.Parameter(base if self.merged else _sum(base, self.delta())), self.bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rank={self.rank}, scale={self.scale:g}"


def _sum(weight: Tensor, delta: Tensor) -> Tensor:
    return (_wide(weight) + delta).to(weight.dtype)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def adapt(model: Model, adapter: Adapter, *, seed: int = 0) -> Model:
    """Add an adapter to a model, in place, and freeze everything that it does not train. Returns the model.

    Raises ValueError if a pattern matches nothing, or the model has an adapter already.
    """
    if not isinstance(adapter, Adapter):
        raise ValueError(f"an adapter is a qkv.LoRA or another Adapter, not {shown(adapter)}")
    adapter.adapt(_module(model), seed)
    return model


def _module(model: Model) -> Model:
    if not isinstance(model, nn.Module):
        raise ValueError(f"a model is a PyTorch module, such as qkv.load(…).model, not {shown(model)}")
    return model


@torch.no_grad()
def insert(model: nn.Module, spec: LoRA, sizes: Mapping[str, AdapterSize], seed: int = 0) -> None:
    """Add adapters of these sizes to the layers of these names. A is drawn on the CPU, layer by layer."""
    if getattr(model, "adapter", None) is not None:
        raise ValueError("this model has an adapter already; merge it into the model's weights by `fold` first")
    also_trained = [parameter for pattern in spec.train for parameter in _parameters(model, pattern)]
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for name, size in sizes.items():
        base = model.get_submodule(name)
        assert isinstance(base, Linear)
        _put(model, name, LoRALinear(base, size, spec.dropout))
    for name, value in initial_factors(model, sizes, seed):
        if not (factor := model.get_parameter(name)).is_meta:
            factor.copy_(value)
    for parameter in also_trained:
        parameter.requires_grad_(True)
    _note(model, spec)


def _note(model: Any, spec: Adapter | None) -> None:
    """Note a model's adapter in its attribute `adapter`."""
    model.adapter = spec


def initial_factors(model: nn.Module, names: Iterable[str], seed: int = 0) -> Iterator[tuple[str, Tensor]]:
    """The names and initial values of the matrices A and B of some adapted layers, one after the other."""
    generator = torch.Generator().manual_seed(seed)
    for name in names:
        layer = model.get_submodule(name)
        assert isinstance(layer, LoRALinear)
        bound = layer.in_features**-0.5
        yield f"{name}.lora_a", torch.empty(layer.rank, layer.in_features).uniform_(-bound, bound, generator=generator)
        yield f"{name}.lora_b", torch.zeros(layer.out_features, layer.rank)


def matching(model: nn.Module, patterns: Iterable[str]) -> list[str]:
    """Return the names of the linear layers that patterns match, in the model's order. Raises ValueError for a pattern
    without a match. Embeddings, the output head and the stacked matrices of experts do not count as linear layers."""
    known = [name for name, module in model.named_modules() if isinstance(module, Linear)]
    matches: set[str] = set()
    for pattern in patterns:
        own = {name for name in known if fnmatchcase(name, pattern)}
        if not own:
            raise ValueError(
                f"adapter.layers: {brief(pattern)} matches no linear layer of this model (embeddings, output heads "
                f"and experts do not count); {nearest(pattern, known)}"
            )
        matches |= own
    return [name for name in known if name in matches]


def _parameters(model: nn.Module, pattern: str) -> list[nn.Parameter]:
    named = dict(model.named_parameters(remove_duplicate=False))
    matches = [parameter for name, parameter in named.items() if fnmatchcase(name, pattern)]
    if not matches:
        raise ValueError(
            f"adapter.train: {brief(pattern)} matches no parameter of this model; {nearest(pattern, named)}"
        )
    return matches


def layers(model: nn.Module) -> dict[str, LoRALinear]:
    """Return the adapted layers of a model by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, LoRALinear)}


def trained(model: nn.Module) -> set[str] | None:
    """Return the names of the parameters that an adapted model trains; None if it has no adapter."""
    spec = getattr(model, "adapter", None)
    if not isinstance(spec, LoRA):
        return None
    own = {f"{name}.{part}" for name in layers(model) for part in ("lora_a", "lora_b")}
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    return own | {name for name in names for pattern in spec.train if fnmatchcase(name, pattern)}


@torch.no_grad()
def merge(model: nn.Module) -> None:
    """Add each adapter to its layer's weight, in place: the same outputs without extra cost. `unmerge` undoes it up to
    rounding; merged adapters get no gradient. Raises ValueError for quantized weights, which can't be added to."""
    if quantized(model):
        raise ValueError("adapters can't be added to quantized weights in place; `fold` dequantizes them")
    for layer in layers(model).values():
        if not layer.merged:
            layer.weight.copy_(_sum(layer.weight, layer.delta()))
            layer.merged = True


@torch.no_grad()
def unmerge(model: nn.Module) -> None:
    """Undo `merge`."""
    for layer in layers(model).values():
        if layer.merged:
            layer.weight.copy_(_sum(layer.weight, -layer.delta()))
            layer.merged = False


def merged(model: nn.Module) -> list[tuple[str, torch.dtype, tuple[int, ...], Callable[[], Tensor]]]:
    """Return name, dtype and shape of each tensor that the model has after `fold`, with a function that computes it:
    not all have to be in memory. Shared tensors are listed once."""
    tensors: list[tuple[str, torch.dtype, tuple[int, ...], Callable[[], Tensor]]] = []
    seen: set[int] = set()
    for path, module in model.named_modules():
        if isinstance(module, QuantizedMatrix):
            layer = model.get_submodule(path.removesuffix(".weight"))
            make = partial(_full_weight, layer) if isinstance(layer, LoRALinear) else module.dense
            tensors.append((path, module.dtype, module.dense_shape, make))
            continue
        own = {**module._parameters, **module._buffers}
        for name, tensor in own.items():
            apart = name in module._non_persistent_buffers_set or name in ("lora_a", "lora_b")
            if tensor is None or apart or id(tensor) in seen:
                continue
            seen.add(id(tensor))
            changed = isinstance(module, LoRALinear) and name == "weight"
            make = partial(_full_weight, module) if changed else partial(_itself, tensor)
            tensors.append((f"{path}.{name}" if path else name, tensor.dtype, tuple(tensor.shape), make))
    return tensors


def _full_weight(layer: LoRALinear) -> Tensor:
    return layer.plain().weight


def _itself(tensor: Tensor) -> Tensor:
    return tensor


def fold(model: Model) -> Model:
    """Merge adapters into the model's weights for good, in place, and make all parameters trainable. Returns the model."""
    for name, layer in layers(_module(model)).items():
        _put(model, name, layer.plain())
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    _note(model, None)
    return model


@contextmanager
def folded(model: nn.Module) -> Iterator[None]:
    """Context in which the model has no adapters but merged weights; afterwards it is as before, bit for bit. Copies the
    adapted layers' weights."""
    adapted, spec = layers(model), getattr(model, "adapter", None)
    try:
        for name, layer in adapted.items():
            _put(model, name, layer.plain())
        _note(model, None)
        yield
    finally:
        for name, layer in adapted.items():
            _put(model, name, layer)
        _note(model, spec)


def of_merged(write: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Decorate a function that writes a model in a format without adapters: it gets the model with its adapters merged into
    the weights."""

    @wraps(write)
    def merging(model: Any, *args: P.args, **options: P.kwargs) -> R:
        if getattr(model, "adapter", None) is None:
            return write(model, *args, **options)
        with folded(model):
            return write(model, *args, **options)

    return merging


def _put(model: nn.Module, name: str, module: nn.Module) -> None:
    path, _, own = name.rpartition(".")
    setattr(model.get_submodule(path), own, module)
