"""One attention request: everything that says *what* is to be computed, and nothing of *how*."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

from jaxtyping import Float
from torch import Tensor

from ..core.layout import Layout
from ..patterns.basic import Pattern
from ..positions.base import Bias
from .plan import Plan

Result = Tensor | tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Comparison:
    """How queries meet keys where that is no dot product. `attention.scores` has those that come with the library."""

    def __call__(self, q: Float[Tensor, "B H T A"], k: Float[Tensor, "B H S A"]) -> Float[Tensor, "B H T S"]:
        """The scores; −∞ hides a pair."""
        raise NotImplementedError

    def of(self, heads: Tensor) -> Comparison:
        """That of some of the heads."""
        return self


class Weights(Protocol):
    """What makes weights of scores in place of the soft-max. `attention.weighting` has those that come with the library."""

    kind: ClassVar[str]

    def weights(self, scores: Float[Tensor, "B H T S"], mask: Tensor | None) -> Float[Tensor, "B H T S"]:
        """Weights of the pairs that the mask allows; those of other pairs are ignored."""
        ...


@dataclass(frozen=True, eq=False)
class Request:
    """Queries (B, T, H, D), keys (B, S, K, D) and values (B, S, K, E), K dividing H, and how they are to meet.

    score: how they are compared, where that is not by scaled dot products. weighting: what makes weights of scores, where
    that is no soft-max. sinks: a logit for each head beside those of the keys; `attend` applies it, backends need not.
    held: the weights, where they are known already.
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
    score: Comparison | None = None
    weighting: Weights | None = None
    sinks: Float[Tensor, " H"] | None = None
    held: Float[Tensor, "B H T S"] | None = None

    @property
    def n_heads(self) -> int:
        return self.q.shape[2]

    @property
    def n_kv_heads(self) -> int:
        return self.k.shape[2]

    def mask(self) -> Tensor | None:
        """Pattern, segments and padded keys as a boolean (B or 1, H or 1, T or 1, S); None where all is allowed."""
        return self.plan.mask(self.pattern, self.layout, self.kv_layout, self.n_heads)

    def dense_bias(self) -> Tensor | None:
        """The bias as a tensor that broadcasts to (B, H, T, S)."""
        bias = self.bias
        if not isinstance(bias, Bias):
            return bias
        about = (bias, self.layout, self.kv_layout)
        return self.plan.once("bias", about, lambda: bias(self.layout.queries(), self.kv_layout.keys()))


class Backend(Protocol):
    """How a request is computed: a module with these two functions."""

    def refuses(self, request: Request) -> str | None:
        """Why this backend cannot serve the request; None when it can."""
        ...

    def run(self, request: Request) -> Result:
        """The output (B, T, H, E), and the log-sum-exp (B, H, T) when asked for."""
        ...


def default_scale(d_head: int) -> float:
    return 1.0 / math.sqrt(d_head)
