"""`Request`: the arguments of one attention call, which every backend takes; and the interface of backends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from ...core.layout import Layout
from ..patterns.basic import Pattern
from ..patterns.documents import current_places, places_of
from ..positions.base import Bias
from .native.dropout import EVERYWHERE, WeightPlaces
from .plan import Plan

Result = Tensor | tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class ScoreFunction:
    """A function that compares queries and keys, in place of the dot product (`attention.scores`)."""

    def __call__(self, q: Float[Tensor, "B H T A"], k: Float[Tensor, "B H S A"]) -> Float[Tensor, "B H T S"]:
        """Scores of all pairs; −∞ hides a pair."""
        raise NotImplementedError

    def of(self, heads: Tensor) -> ScoreFunction:
        """The comparison for some of the heads."""
        return self


class WeightFunction(Protocol):
    """A function from scores to weights, in place of the soft-max (`attention.weighting`)."""

    kind: ClassVar[str]

    def weights(self, scores: Float[Tensor, "B H T S"], mask: Tensor | None) -> Float[Tensor, "B H T S"]:
        """Weights of the pairs that the mask allows; weights of other pairs are ignored."""
        ...


@dataclass(frozen=True)
class Edits:
    """Functions that replace the scores or the weights (B, H, T, S) of one attention call; None leaves them."""

    scores: Callable[[Tensor], Tensor] | None = None
    weights: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True, eq=False)
class Request:
    """Queries (B, T, H, D), keys (B, S, K, D) and values (B, S, K, E), K dividing H, and the options of `attend`.

    score: the comparison in place of the scaled dot product. weighting: what turns scores into weights in place of the
    soft-max. sinks: a logit for each head beside the keys' logits; `attend` applies it, so backends need not.
    known_weights: the weights, if they have been computed already.
    edits: changes of all scores and weights, in order, which only the reference implementation applies.
    """

    q: Float[Tensor, "B T H D"]
    k: Float[Tensor, "B S K D"]
    v: Float[Tensor, "B S K E"]
    pattern: Pattern
    layout: Layout
    kv_layout: Layout
    bias: Tensor | Bias | None
    scale: float
    dropout: float
    softcap: float | None
    return_lse: bool
    plan: Plan
    name: str = ""
    score: ScoreFunction | None = None
    weighting: WeightFunction | None = None
    sinks: Float[Tensor, " H"] | None = None
    known_weights: Float[Tensor, "B H T S"] | None = None
    edits: tuple[Edits, ...] = ()

    @property
    def n_heads(self) -> int:
        return self.q.shape[2]

    @property
    def n_kv_heads(self) -> int:
        return self.k.shape[2]

    def edited(self, name: Literal["scores", "weights"], x: Float[Tensor, "B H T S"]) -> Float[Tensor, "B H T S"]:
        """The scores or weights of all pairs after the edits."""
        for one in self.edits:
            function: Callable[[Tensor], Tensor] | None = getattr(one, name)
            x = x if function is None else function(x)
        return x

    def mask(self) -> Tensor | None:
        """Pattern, segments and padded keys as a boolean (B or 1, H or 1, T or 1, S); None if every pair is allowed."""
        return self.plan.mask(self.pattern, self.layout, self.kv_layout, self.n_heads)

    def weight_places(self) -> WeightPlaces:
        """Return the places of the weights in the whole batch, which select the dropout mask."""
        if torch.compiler.is_compiling():
            return EVERYWHERE
        keys = self.plan.once("places", (self.kv_layout,), partial(places_of, self.kv_layout))
        return WeightPlaces.of(current_places(), None if keys is None else keys.token, *self.q.shape[:2])

    def dense_bias(self) -> Tensor | None:
        """The bias as a tensor that broadcasts to (B, H, T, S)."""
        bias = self.bias
        if not isinstance(bias, Bias):
            return bias
        about = (bias, self.layout, self.kv_layout)
        return self.plan.once("bias", about, lambda: bias(self.layout.queries(), self.kv_layout.keys()))


class Backend(Protocol):
    """An attention implementation: a module with these two functions."""

    def refuses(self, request: Request) -> str | None:
        """Why this backend cannot serve the request; None when it can."""
        ...

    def run(self, request: Request) -> Result:
        """The output (B, T, H, E), and the log-sum-exp (B, H, T) with `return_lse`."""
        ...
