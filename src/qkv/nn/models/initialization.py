"""Weight initialization: Glorot, LeCun, GPT-2's, T5's and DeepNorm's schemes, seeded by (seed, parameter name).

The initial values of a parameter depend on its name and the seed alone, not on the rest of the model, the order in which it
is built or its sharding. Values that a module defines or fills in itself are kept.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ...core.spec import Spec
from ..layers.embedding import TokenEmbedding
from ..layers.grouped_linear import GroupedLinear
from ..layers.linear import Linear
from ..positions.absolute import LearnedEmbedding
from ..positions.bias import T5Bias
from .heads.language_model import LanguageModelHead
from .placement import deepnorm_constants
from .unfilled import unfilled

Draw = tuple[str, Any]  # ("normal", std), ("uniform", bound) or ("constant", a number or a tensor)


class Initialization(Spec, role="initialization"):
    """Base class of initialization schemes: the distribution that each parameter is drawn from."""

    def matrix(self, fan_in: int, fan_out: int, into_residual: bool, n_layers: int) -> Draw:
        raise NotImplementedError

    def embedding(self, width: int) -> Draw:
        return "normal", 0.02

    def draw(self, module: nn.Module, path: str, value: Tensor, n_layers: int) -> Draw:
        """Return the distribution of a parameter by its path; a module with `initial(name)` defines its own values."""
        value_set = initial_value(module, path.rpartition(".")[2])
        if value_set is not None:
            return "constant", value_set
        if isinstance(module, TokenEmbedding | LearnedEmbedding | LanguageModelHead | T5Bias) and value.ndim == 2:
            return self.embedding(value.shape[1])
        if value.ndim < 2:
            return "constant", 0.0
        residual = isinstance(module, Linear | GroupedLinear) and module.into_residual
        product = _product_of(module)
        if product is None:
            return self.matrix(value.shape[-1], value.shape[-2], residual, n_layers)
        d_in, rank, d_out = product
        kind, size = self.matrix(d_in, d_out, residual, n_layers)
        return kind, _factor(kind, size, rank)


def _product_of(module: nn.Module) -> tuple[int, int, int] | None:
    """(d_in, rank, d_out) of the product of low rank that a module is a factor of."""
    return module.factor_of if isinstance(module, Linear) else None


def _factor(kind: str, size: float, rank: int) -> float:
    """The size of two factors whose product has the variance of a matrix of this size: r · Var(u) · Var(v) = Var(w)."""
    return float((size**2 * (3 if kind == "uniform" else 1) / rank) ** 0.25)


class Glorot(Initialization, kind="glorot"):
    """U(±√(6 / (fan_in + fan_out))) (Glorot & Bengio 2010); embeddings N(0, 1/d): the original Transformer's code."""

    def matrix(self, fan_in: int, fan_out: int, into_residual: bool, n_layers: int) -> Draw:
        return "uniform", math.sqrt(6 / (fan_in + fan_out))

    def embedding(self, width: int) -> Draw:
        return "normal", width**-0.5


class DeepNormGlorot(Glorot, kind="deepnorm"):
    """N(0, 2β² / (fan_in + fan_out)), β being 1 for queries and keys (Wang et al. 2022, DeepNet), by each stack's depth."""

    encoder_layers: int = Field(default=0, ge=0)
    decoder_layers: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _has_layers(self) -> DeepNormGlorot:
        if not self.encoder_layers + self.decoder_layers:
            raise ValueError("deepnorm needs the depth of the stacks: give encoder_layers, decoder_layers or both")
        return self

    def draw(self, module: nn.Module, path: str, value: Tensor, n_layers: int) -> Draw:
        kind, size = super().draw(module, path, value, n_layers)
        if kind != "uniform":
            return kind, size
        stack, _, inner = path.partition(".")
        constants = deepnorm_constants(self.encoder_layers, self.decoder_layers)
        into_scores = not {"q", "k"}.isdisjoint(inner.split("."))
        beta = 1.0 if into_scores or stack not in constants else constants[stack][1]
        product = _product_of(module)
        if product is None:
            return "normal", beta * math.sqrt(2 / (value.shape[-1] + value.shape[-2]))
        d_in, rank, d_out = product
        return "normal", _factor("normal", beta * math.sqrt(2 / (d_in + d_out)), rank)


class Normal(Initialization, kind="normal"):
    """N(0, std²), and N(0, std² / 2L) into the residual stream of L layers when `scale_residual` (GPT-2)."""

    std: float = Field(default=0.02, gt=0, allow_inf_nan=False)
    scale_residual: bool = True

    def matrix(self, fan_in: int, fan_out: int, into_residual: bool, n_layers: int) -> Draw:
        return "normal", self.std / math.sqrt(2 * n_layers) if into_residual and self.scale_residual else self.std

    def embedding(self, width: int) -> Draw:
        return "normal", self.std


class LeCun(Initialization, kind="lecun"):
    """PaLM's initialization (Chowdhery et al. 2022, §5): N(0, 1/fan_in) for matrices (LeCun et al. 1998), N(0, 1) for
    embeddings."""

    factor: float = Field(default=1.0, gt=0)

    def matrix(self, fan_in: int, fan_out: int, into_residual: bool, n_layers: int) -> Draw:
        return "normal", self.factor * fan_in**-0.5

    def embedding(self, width: int) -> Draw:
        return "normal", self.factor


class T5Normal(LeCun, kind="t5"):
    """N(0, 1/fan_in) for matrices, N(0, 1/(fan_in · d_head)) for queries, since T5 leaves scores unscaled; N(0, 1) for
    embeddings, N(0, 1/d_model) for the position buckets (Raffel et al. 2020's code)."""

    def draw(self, module: nn.Module, path: str, value: Tensor, n_layers: int) -> Draw:
        if isinstance(module, T5Bias):
            return "normal", self.factor * module.d_model**-0.5
        kind, size = super().draw(module, path, value, n_layers)
        if isinstance(module, Linear) and module.into_scores and value.ndim == 2:
            size *= module.into_scores**-0.5
        return kind, size


def initial_value(module: nn.Module, name: str) -> float | Tensor | None:
    """Return `module.initial(name)`, or None for a module without that method."""
    method = getattr(module, "initial", None)
    if not callable(method) or isinstance(method, nn.Module):  # a submodule of that name
        return None
    value: float | Tensor | None = method(name)
    return value


@torch.no_grad()
def initialize(model: nn.Module, scheme: Initialization, seed: int, n_layers: int) -> None:
    """Initialize in place all elements of parameters that are `unfilled`, or that modules define by `initial`.

    Values are drawn in fp32 on the host, whatever the device and dtype. A module with the attribute `drawn` keeps none
    of its values.
    """
    for path, module, value in _parameters(model):
        whole = _initialize_whole(module, path.rpartition(".")[2])
        left = torch.ones_like(value, dtype=torch.bool) if whole else unfilled(value)
        if bool(left.any()):
            start = _start(scheme.draw(module, path, value, n_layers), value.shape, value.dtype, seed, path).to(value)
            value.copy_(start if bool(left.all()) else torch.where(left, start, value))


def _parameters(model: nn.Module) -> Iterator[tuple[str, nn.Module, nn.Parameter]]:
    """The parameters with their modules and paths. A shared one is given once, under its first name."""
    done: set[int] = set()
    for prefix, module in model.named_modules():
        for name, value in module.named_parameters(recurse=False):
            if id(value) not in done:
                done.add(id(value))
                yield f"{prefix}.{name}" if prefix else name, module, value


class Values(Protocol):
    """The values of a model's parameters that are on the meta device, which are made or read one at a time."""

    def __contains__(self, path: str) -> bool: ...

    def value(self, path: str) -> Tensor:
        """The whole value of a parameter, on the host."""
        ...


class Draws:
    """The initial values of the parameters of an outline (`build.outline`), which are drawn one at a time."""

    def __init__(self, model: nn.Module, scheme: Initialization, seed: int, n_layers: int) -> None:
        self.seed = seed
        self._of = {
            path: (scheme.draw(module, path, value, n_layers), value.shape, value.dtype)
            for path, module, value in _parameters(model)
            if value.is_meta or _initialize_whole(module, path.rpartition(".")[2])
        }
        first = {id(value): path for path, _, value in _parameters(model)}
        self._first = {path: first[id(value)] for path, value in model.named_parameters(remove_duplicate=False)}

    def __contains__(self, path: str) -> bool:
        return self._first.get(path) in self._of

    def value(self, path: str) -> Tensor:
        """The whole value of a parameter, as `initialize` gives it, on the host."""
        first = self._first[path]
        return _start(*self._of[first], self.seed, first)


class Overlaid:
    """Values, of which some tensors replace a few or are added."""

    def __init__(self, values: Values, tensors: Mapping[str, Tensor]) -> None:
        self.values, self.tensors = values, tensors

    def __contains__(self, path: str) -> bool:
        return path in self.tensors or path in self.values

    def value(self, path: str) -> Tensor:
        """The whole value of a parameter."""
        return self.tensors[path] if path in self.tensors else self.values.value(path)


def _drawn_as(path: str) -> str:
    """Return the name that seeds a parameter's draws. It stays the same when a parameter is renamed, so a seed keeps
    giving the same model."""
    for now, before in (
        ("classification_head.dense.", "pooler.dense."),
        ("classification_head.out.", "classifier.out."),
    ):
        if path.startswith(now):
            return before + path.removeprefix(now)
    return path


def drawn_whole(model: nn.Module, some: Iterable[nn.Parameter]) -> bool:
    """Whether the scheme, or a module's `initial`, gives some parameters all their values, whatever was written to them."""
    wholes = {id(p) for path, module, p in _parameters(model) if _initialize_whole(module, path.rpartition(".")[2])}
    return all(id(parameter) in wholes for parameter in some)


def _initialize_whole(module: nn.Module, name: str) -> bool:
    return getattr(module, "drawn", None) is True or initial_value(module, name) is not None


def _start(draw: Draw, shape: torch.Size, dtype: torch.dtype, seed: int, path: str) -> Tensor:
    kind, size = draw
    if kind == "constant":
        constant = torch.as_tensor(size, dtype=dtype)
        if constant.ndim and constant.shape != shape:
            raise ValueError(
                f"initial() returned shape {tuple(constant.shape)} for {path}, whose shape is {tuple(shape)}"
            )
        return constant.expand(shape)
    generator = torch.Generator().manual_seed(parameter_seed(seed, _drawn_as(path)))
    start = torch.empty(shape, dtype=torch.float32)
    if kind == "normal":
        return start.normal_(0, size, generator=generator)
    return start.uniform_(-size, size, generator=generator)


def parameter_seed(seed: int, name: str) -> int:
    """Hash (seed, parameter name) to a 63-bit seed."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
