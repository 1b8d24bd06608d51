"""Reversible layers (Gomez et al. 2017; Reformer, Kitaev et al. 2020, §3): activations are recomputed from the outputs.

A step maps streams (x₁, x₂) to (x₂, x₁ + f(x₂)), and its inverse is (y₁, y₂) → (y₂ − f(y₁), y₁). So of any number of
layers only the last one's output is kept for backward, which computes every f once more, as activation checkpointing does.
Recomputed activations are the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import Parameter
from torch.utils.checkpoint import get_device_states, set_device_states

from ...core.graphs import untraced
from ..attention.mixer import Pass
from ..patterns.documents import TokenPlaces, current_places, placed


class ReversibleBlock(Protocol):
    """The members of a block that reversible steps use."""

    sublayers: list[str]

    def branch(self, name: str, x: Tensor, run: Pass) -> Tensor:
        """f of one step."""
        ...

    def parameters(self) -> Iterator[Parameter]: ...


@untraced  # a graph can hold neither random generators nor inner gradients
def reversible(
    blocks: Sequence[ReversibleBlock], x: Float[Tensor, "2 B T M"], runs: Sequence[Pass]
) -> Float[Tensor, "2 B T M"]:
    """Return both streams after all blocks, each with its `Pass`; memory for backward does not grow with their number.

    Gradients reach x, the blocks' parameters, an encoder's output and the tensors of a position bias.
    """
    leaves = dict.fromkeys(t for block, run in zip(blocks, runs, strict=True) for t in _reached(block, run))
    out: Tensor = _Reversible.apply(x, blocks, runs, *leaves)
    return out


def _reached(block: ReversibleBlock, run: Pass) -> list[Tensor]:
    """Return the tensors other than its input that a block has gradients for."""
    others = (run.memory, *(() if run.bias is None else run.bias.tensors))
    return [t for t in (*block.parameters(), *others) if t is not None and t.requires_grad]


@dataclass(frozen=True)
class _RandomState:
    """The random generators' states and the tokens' places, with which a recomputed branch draws the same numbers."""

    host: Tensor
    devices: list[int]
    states: list[Tensor]
    places: TokenPlaces | None

    @classmethod
    def now(cls, x: Tensor) -> _RandomState:
        return cls(torch.get_rng_state(), *get_device_states(x), current_places())

    @contextmanager
    def restored(self, kind: str) -> Iterator[None]:
        device = {} if kind == "cpu" else {"device_type": kind}
        with torch.random.fork_rng(self.devices, **device), placed(self.places):
            torch.set_rng_state(self.host)
            set_device_states(self.devices, self.states, **device)
            yield


def _autocast(kind: str) -> AbstractContextManager[Any]:
    """Return a context with the autocast settings of this moment."""
    if not torch.amp.is_autocast_available(kind):
        return nullcontext()
    return torch.autocast(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))


class _Reversible(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, blocks: Sequence[ReversibleBlock], runs: Sequence[Pass], *leaves: Tensor
    ) -> Tensor:
        x1, x2 = x.unbind()
        ctx.steps = []
        for block, run in zip(blocks, runs, strict=True):
            for name in block.sublayers:
                ctx.steps.append((block, run, name, _RandomState.now(x2)))
                x1, x2 = x2, x1 + block.branch(name, x2, run)
        ctx.leaves, ctx.autocast = leaves, _autocast(x.device.type)
        out = torch.stack([x1, x2])
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (y1, y2), (d1, d2) = ctx.saved_tensors[0].unbind(), grad.unbind()
        gradients: dict[Tensor, Tensor] = {}
        for block, run, name, random in reversed(ctx.steps):
            with torch.enable_grad(), random.restored(y1.device.type), ctx.autocast:
                x = y1.detach().requires_grad_()
                output = block.branch(name, x, run.afresh())
            leaves = _reached(block, run)
            d_x, *more = torch.autograd.grad(output, [x, *leaves], d2.to(output.dtype), allow_unused=True)
            y1, y2 = y2 - output.detach(), y1
            d1, d2 = d2, d1 if d_x is None else d1 + d_x
            for leaf, part in zip(leaves, more, strict=True):
                if part is not None:
                    gradients[leaf] = gradients[leaf] + part if leaf in gradients else part
        return torch.stack([d1, d2]), None, None, *(gradients.get(leaf) for leaf in ctx.leaves)
