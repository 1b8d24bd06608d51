"""AWQ's scales in a model: where the inputs of a layer come from an operation that can divide them by s for nothing.

    norm → q, k, v          norm → gate, up          v → out, with as many value heads as query heads
    up → down, where the hidden activations are gated, or relu, which commutes with positive factors

In a mixture of experts the norm's scales are common to all experts, the router and the shared layer, and each expert
has its own scales between up and down. Other inputs, such as a post-norm block's, which the residual stream reads too,
have no scales.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...attention.multi_head import MultiHeadAttention
from ...layers.feedforward import FeedForwardNet
from ...layers.grouped_linear import GroupedLinear
from ...layers.linear import Linear
from ...layers.moe import Mixture
from ...layers.norm import LayerNormalize, OffsetRMSNormalize, RMSNormalize
from ..block import BlockModule


@dataclass(frozen=True)
class Smoothing:
    """The names of matrices (`parts`) that read the same inputs, and what divides these inputs by s."""

    readers: tuple[str, ...]
    divide: Callable[[Tensor], None]


def smoothings(model: nn.Module) -> Iterator[Smoothing]:
    """The places of a model where inputs can be divided by s."""
    for name, block in model.named_modules():
        if isinstance(block, BlockModule):
            yield from _of_norms(name, block)
            for sublayer in ("attention", "cross", "feedforward"):
                yield from _inside(f"{name}.{sublayer}", getattr(block, sublayer))


def _of_norms(name: str, block: BlockModule) -> Iterator[Smoothing]:
    if block.norms_sum:
        return
    for sublayer, norm in block.norm.items():
        served = [sublayer] if len(block.norm) == len(block.sublayers) else block.sublayers
        readers = [_readers(f"{name}.{part}", getattr(block, part)) for part in served]
        if isinstance(norm, LayerNormalize | RMSNormalize | OffsetRMSNormalize) and all(readers):
            routers = [part.router.weight for name in served if isinstance(part := getattr(block, name), Mixture)]
            yield Smoothing(tuple(path for some in readers for path in some), _divides_norm(norm, routers))


def _readers(path: str, part: nn.Module) -> list[str]:
    """The matrices of a sublayer that read its input, if there are no others that do but a router."""
    if type(part) is Mixture:
        return _readers_of_mixture(path, part)
    if type(part) is MultiHeadAttention:
        names = ["q"] if part.cross else ["q", "k", "v"]
    elif type(part) is FeedForwardNet:
        names = ["up"] if part.gate is None else ["gate", "up"]
    else:
        return []
    return [f"{path}.{name}" for name in names] if all(type(getattr(part, name)) is Linear for name in names) else []


def _readers_of_mixture(path: str, part: Mixture) -> list[str]:
    grouped = ["up"] if part.gate is None else ["gate", "up"]
    readers = [f"{path}.{name}.{e}" for e in range(part.spec.n_experts) for name in grouped]
    if part.shared is not None:
        shared = _readers(f"{path}.shared", part.shared)
        readers = readers + shared if shared else []
    return readers + ([f"{path}.shared_gate"] if part.shared_gate is not None and readers else [])


def _inside(path: str, part: nn.Module | None) -> Iterator[Smoothing]:
    if type(part) is MultiHeadAttention and type(part.v) is Linear and type(part.out) is Linear:
        yield from [Smoothing((f"{path}.out",), _divides_rows(part.v))] if part.n_heads == part.n_kv_heads else []
    if type(part) is FeedForwardNet and type(part.up) is Linear and type(part.down) is Linear:
        commutes = part.gate is not None or part.activation is torch.nn.functional.relu
        yield from [Smoothing((f"{path}.down",), _divides_rows(part.up))] if commutes else []
    if type(part) is Mixture:
        if part.gate is not None or part.activation is torch.nn.functional.relu:
            for e in range(part.spec.n_experts):
                yield Smoothing((f"{path}.down.{e}",), _divides_expert(part.up, e))
        yield from _inside(f"{path}.shared", part.shared)


@torch.no_grad()
def _divided(parameter: Tensor, s: Tensor, offset: float = 0.0) -> None:
    parameter.copy_((parameter.float() + offset) / s - offset)


def _divides_norm(
    norm: LayerNormalize | RMSNormalize | OffsetRMSNormalize, routers: Sequence[Tensor] = ()
) -> Callable[[Tensor], None]:
    """`routers` read the norm's output too, and stay as they are but for the factors."""

    def divide(s: Tensor) -> None:
        for router in routers:
            _divided(router, 1 / s)
        _divided(norm.weight, s, 0.0 if isinstance(norm, LayerNormalize) else norm.offset)
        if isinstance(norm, LayerNormalize) and norm.bias is not None:
            _divided(norm.bias, s)

    return divide


def _divides_rows(layer: Linear) -> Callable[[Tensor], None]:
    def divide(s: Tensor) -> None:
        _divided(layer.weight, s[:, None])
        if layer.bias is not None:
            _divided(layer.bias, s)

    return divide


def _divides_expert(layer: GroupedLinear, expert: int) -> Callable[[Tensor], None]:
    def divide(s: Tensor) -> None:
        _divided(layer.weight[expert], s[:, None])

    return divide
