"""Tensor parallelism: heads, neurons and the vocabulary divided over ranks (Shoeybi et al. 2019, Megatron-LM).

`PLAN` says of each kind of layer which parameters are divided, along which dimension. The first matrix of a sublayer is
divided by its outputs, so each rank computes some heads or neurons, and the last one by its inputs, so each rank
has a summand of the output (`tokens.Tokens` sums them). What the plan does not name is computed on every rank: norms,
routers, and attention other than plain multi-head attention.

If there are fewer key-value heads than ranks, consecutive ranks have the same one. Each computes its keys and values, and
the backward pass sums the gradients of these ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from ....nn.attention.multi_head import MultiHeadAttention
from ....nn.cost.plan.rules import check_heads
from ....nn.layers.embedding import TokenEmbedding
from ....nn.layers.feedforward import FeedForwardNet
from ....nn.layers.linear import Linear
from ....nn.layers.losses import LossSums
from ....nn.layers.moe import Mixture
from ....nn.models.heads.language_model import LanguageModelHead
from .. import collectives
from ..mesh import Mesh
from ..world import World
from .division import Division, ParameterSlice
from .tokens import DividedSublayer
from .vocabulary import Vocabulary


class TensorDivision(NamedTuple):
    """dim: the dimension along which a parameter is divided. unit: the module's attribute that says how many rows stay
    together, None for single rows."""

    dim: int
    unit: str | None = None


PLAN: Mapping[type[nn.Module], Mapping[str, TensorDivision]] = {
    MultiHeadAttention: {
        "q.weight": TensorDivision(0, "d_head"),
        "q.bias": TensorDivision(0, "d_head"),
        "k.weight": TensorDivision(0, "d_head"),
        "k.bias": TensorDivision(0, "d_head"),
        "v.weight": TensorDivision(0, "d_value"),
        "v.bias": TensorDivision(0, "d_value"),
        "out.weight": TensorDivision(1, "d_value"),
        "sinks": TensorDivision(0),
    },
    FeedForwardNet: {
        "gate.weight": TensorDivision(0),
        "gate.bias": TensorDivision(0),
        "up.weight": TensorDivision(0),
        "up.bias": TensorDivision(0),
        "down.weight": TensorDivision(1),
    },
    TokenEmbedding: {"weight": TensorDivision(0)},
    LanguageModelHead: {"weight": TensorDivision(0), "bias": TensorDivision(0)},
}


def divide_model(model: nn.Module, mesh: Mesh, division: Division) -> dict[nn.Module, DividedSublayer]:
    """Divide the model over the axis "tensor". Returns the divided sublayers.

    Raises ValueError if the heads of a layer can't be divided, with the numbers of ranks that can.
    """
    divided: dict[nn.Module, DividedSublayer] = {}
    # Each rank has tokens of its own in a mixture, so a shared layer beside the experts stays whole.
    beside_experts = {part for mixture in model.modules() if isinstance(mixture, Mixture) for part in mixture.modules()}
    for name, module in model.named_modules():
        if module in beside_experts:
            continue
        if type(module) is MultiHeadAttention and _plain_attention(module):
            check_heads(mesh.size("tensor"), module.n_heads, module.n_kv_heads, name)
            _divide_heads(module, mesh, division)
            divided[module] = DividedSublayer(_summand(module.out, division), mesh.index("tensor") * module.n_heads)
        elif type(module) is FeedForwardNet and _linear(module, "gate", "up", "down"):
            last = _summand(module.down, division)
            first = ParameterSlice.of(mesh, "tensor", 1, last.weight.shape[1]).start
            _place(module, mesh, division)
            divided[module] = DividedSublayer(last, first)
    _divide_vocabulary(model, mesh, division)
    return divided


def _plain_attention(module: MultiHeadAttention) -> bool:
    """Whether heads are independent until their outputs are summed."""
    normed_together = module.norms_all and any(True for _ in module.q_norm.parameters())
    return (
        _linear(module, "q", "k", "v", "out")
        and module.score is None
        and not (normed_together or module.pattern.per_head)
    )


def _linear(module: nn.Module, *names: str) -> bool:
    """Whether the layers of these names, if they exist, are plain linear ones."""
    return all(type(getattr(module, name)) in (Linear, type(None)) for name in names)


def _divide_heads(module: MultiHeadAttention, mesh: Mesh, division: Division) -> None:
    number, ranks = mesh.index("tensor"), mesh.size("tensor")
    kept = module.kept_heads or tuple(range(module.n_heads))
    copies = max(1, ranks // module.n_kv_heads)
    _place(module, mesh, division, copies)
    own = module.n_heads // ranks
    division.switch(module, "kept_heads", kept[number * own : (number + 1) * own])
    division.switch(module, "n_heads", own)
    division.switch(module, "n_kv_heads", module.n_kv_heads * copies // ranks)
    if module.sinks is not None and not isinstance(module.sinks, nn.Parameter):
        division.switch(module, "sinks", module.sinks[number * own : (number + 1) * own])
    if copies > 1:
        group = mesh.neighbors("tensor", copies)
        assert isinstance(group, World)
        for layer in (module.k, module.v):
            assert isinstance(layer, Linear)
            division.switch(layer, "forward", partial(_with_copies, layer, group))


def _with_copies(layer: Linear, ranks: World, x: Tensor) -> Tensor:
    """A linear layer of which several ranks have the same part, and use it for different query heads."""
    bias = None if layer.bias is None else collectives.shared(layer.bias, ranks)
    return F.linear(x, collectives.shared(layer.weight, ranks), bias)


def _place(module: nn.Module, mesh: Mesh, division: Division, copies: int = 1) -> None:
    """Divide the parameters of a module by the plan. copies: how many ranks have the same keys and values."""
    for path, placement in PLAN[type(module)].items():
        inner, _, name = path.rpartition(".")
        owner = getattr(module, inner) if inner else module
        parameter = None if owner is None else getattr(owner, name)
        if isinstance(parameter, nn.Parameter):
            unit = 1 if placement.unit is None else getattr(module, placement.unit)
            n = copies if inner in ("k", "v") else 1
            part = ParameterSlice.of(mesh, "tensor", placement.dim, parameter.shape[placement.dim], unit, n)
            division.divide(owner, name, part)


def _summand(last: nn.Module, division: Division) -> Linear:
    """Take the bias out of the output of a sublayer's last layer, which is one of several summands."""
    assert isinstance(last, Linear)
    if last.bias is not None:
        division.switch(last, "forward", partial(_product, last))
    return last


def _product(layer: Linear, x: Tensor) -> Tensor:
    return F.linear(x, layer.weight)


# -- the vocabulary ----------------------------------------------------------------------------------------------------


def _divide_vocabulary(model: nn.Module, mesh: Mesh, division: Division) -> None:
    """Divide the tables of tokens and of heads, unless another kind of layer uses them too."""
    users: dict[nn.Parameter, list[nn.Module]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            users.setdefault(parameter, []).append(module)
    ranks = mesh.group("tensor")
    assert isinstance(ranks, World)
    for table, modules in users.items():
        kinds = {type(module) for module in modules if getattr(module, "weight", None) is table}
        if not kinds or len(modules) != sum(getattr(module, "weight", None) is table for module in modules):
            continue
        if kinds <= {TokenEmbedding, LanguageModelHead} and len(table) >= ranks.size:
            part = ParameterSlice.of(mesh, "tensor", 0, len(table))
            vocabulary = Vocabulary(ranks, part)
            division.divide(modules[0], "weight", part)
            for module in modules:
                if isinstance(module, TokenEmbedding):
                    division.switch(module, "rows", partial(_embedded, module, vocabulary))
                elif isinstance(module, LanguageModelHead):
                    if module.bias is not None:
                        division.divide(module, "bias", part)
                    division.switch(module, "forward", partial(_logits, module, vocabulary))
                    division.switch(module, "loss", partial(_loss, module, vocabulary))


def _embedded(module: TokenEmbedding, vocabulary: Vocabulary, ids: Tensor) -> Tensor:
    return vocabulary.embed(module.weight, ids)


def _logits(module: LanguageModelHead, vocabulary: Vocabulary, hidden: Tensor) -> Tensor:
    return vocabulary.logits(LanguageModelHead.forward(module, hidden))


def _loss(
    module: LanguageModelHead, vocabulary: Vocabulary, hidden: Tensor, labels: Tensor, *options: float, **named: float
) -> LossSums:
    if not module.fused or module.softcap is not None:
        return LanguageModelHead.loss(module, hidden, labels, *options, **named)
    states = module.transformed(hidden)
    return vocabulary.loss(states, module.weight, module.bias, labels, *options, **named)
