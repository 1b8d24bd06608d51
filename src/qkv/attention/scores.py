"""How a query and a key are compared, before the soft-max: the scores of the papers that attention came from.

A score is in two parts. What each side becomes by itself, W_s g of a query and W_h h of a key, is a product of matrices,
made once a sentence whatever the number of queries. Then the sides meet: by a dot product, which fused kernels compute, or
by a `Comparison` of another kind, for which all T·S scores are made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from ..core.spec import Cost, Spec
from ..kernels.request import Comparison


class Score(Spec, role="score"):
    """What says how well a key fits a query. Any attention takes one: `Attention(n_heads=4, score="additive")`."""

    unequal: ClassVar[bool] = False  # whether queries and keys may have unequal widths

    def width(self, d_key: int) -> int:
        """Of what is made of queries and keys: in it they meet, and so wide is a key that is remembered."""
        return d_key

    def module(
        self, d_query: int, d_key: int | None = None, n_heads: int = 1, n_kv_heads: int | None = None
    ) -> ScoreModule:
        """Its parameters, for heads of these widths; `n_kv_heads` heads of keys serve `n_heads` of queries.

        Raises ValueError for widths that it can't compare.
        """
        self.check(d_query, d_query if d_key is None else d_key)
        return self._module(d_query, d_query if d_key is None else d_key, n_heads, n_kv_heads or n_heads)

    def _module(self, d_query: int, d_key: int, n_heads: int, n_kv_heads: int) -> ScoreModule:
        return ScoreModule()

    def scorer(self, d_query: int, d_key: int | None = None, *, seed: int = 0) -> ScoreModule:
        """A module to use on its own: its matrices drawn from U(±√(6 / (fan_in + fan_out)))."""
        made = self.module(d_query, d_key)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, value in made.named_parameters():
                start = getattr(made, "initial", None)
                bound = math.sqrt(6 / sum(value.shape[-2:]))
                value.fill_(start(name)) if start else value.uniform_(-bound, bound, generator=generator)
        return made

    def check(self, d_query: int, d_key: int) -> None:
        """Raises ValueError for widths that can't be compared."""
        if d_query != d_key and not self.unequal:
            able = ", ".join(kind for kind, cls in Score.kinds.items() if issubclass(cls, Score) and cls.unequal)
            raise ValueError(
                f"the score {self.kind!r} compares vectors of equal width, and queries have {d_query} and keys {d_key}; "
                f"scores that can are {able}"
            )

    def cost(
        self, d_query: int, d_key: int, n_heads: int = 1, n_kv_heads: int = 1, queries: int = 0, keys: int = 0
    ) -> Cost:
        """Parameters, and FLOPs for so many queries and keys of a sentence; where they meet, a pair takes 2 · width."""
        return Cost()


class ScoreModule(nn.Module):
    """The module of a `Score`. By itself it is that of plain dot products, qᵀk."""

    scale: float | None = 1.0  # of dot products; None is 1/√width

    def matrices(self) -> Float[Tensor, "H A D"] | None:
        """W_s of each head; None where queries stay as they are."""
        return None

    def queries(self, q: Float[Tensor, "B T H D"]) -> Float[Tensor, "B T H A"]:
        """What a query is when it meets keys."""
        matrices = self.matrices()
        return q if matrices is None else torch.einsum("bthd,had->btha", q, matrices)

    def keys(self, k: Float[Tensor, "B S K D"]) -> Float[Tensor, "B S K A"]:
        """What a key is when it meets queries."""
        return k

    def comparison(self) -> Comparison | None:
        """How they meet; None: by dot products."""
        return None


class ScaledDot(Score, kind="scaled-dot"):
    """qᵀk / √d (Vaswani et al. 2017, §3.2.1)."""

    def _module(self, d_query: int, d_key: int, n_heads: int, n_kv_heads: int) -> ScoreModule:
        made = ScoreModule()
        made.scale = None
        return made


class Dot(Score, kind="dot"):
    """qᵀk (Luong et al. 2015, eq. 8, dot)."""


class General(Score, kind="general"):
    """qᵀ W k (Luong et al. 2015, eq. 8, general). W is made part of the query, which then meets keys in a dot product."""

    unequal: ClassVar[bool] = True

    def _module(self, d_query: int, d_key: int, n_heads: int, n_kv_heads: int) -> ScoreModule:
        return Bilinear(d_query, d_key, n_heads)

    def cost(
        self, d_query: int, d_key: int, n_heads: int = 1, n_kv_heads: int = 1, queries: int = 0, keys: int = 0
    ) -> Cost:
        matrix = n_heads * d_query * d_key
        return Cost(matrix, 2 * matrix * queries)


class Bilinear(ScoreModule):
    """The module of `General`: `weight` (H, d_query, d_key)."""

    def __init__(self, d_query: int, d_key: int, n_heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_heads, d_query, d_key))

    def matrices(self) -> Float[Tensor, "H A D"]:
        return self.weight.mT


class Additive(Score, kind="additive"):
    """vᵀ tanh(W_s q + W_h k), with W_h k made once a sentence (Bahdanau et al. 2015, §A.1.2). `d_a` is by default d_key."""

    unequal: ClassVar[bool] = True

    d_a: int | None = Field(default=None, gt=0)

    def width(self, d_key: int) -> int:
        return self.d_a or d_key

    def _module(self, d_query: int, d_key: int, n_heads: int, n_kv_heads: int) -> ScoreModule:
        return Perceptron(self.width(d_key), d_query, d_key, n_heads, n_kv_heads)

    def cost(
        self, d_query: int, d_key: int, n_heads: int = 1, n_kv_heads: int = 1, queries: int = 0, keys: int = 0
    ) -> Cost:
        d_a = self.width(d_key)
        of_queries, of_keys = n_heads * d_a * d_query, n_kv_heads * d_a * d_key
        return Cost(of_queries + of_keys + n_heads * d_a, 2 * (of_queries * queries + of_keys * keys))


class Perceptron(ScoreModule):
    """The module of `Additive`: `query` (H, d_a, d_query), `key` (K, d_a, d_key) and `v` (H, d_a)."""

    def __init__(self, d_a: int, d_query: int, d_key: int, n_heads: int, n_kv_heads: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.empty(n_heads, d_a, d_query))
        self.key = nn.Parameter(torch.empty(n_kv_heads, d_a, d_key))
        self.v = nn.Parameter(torch.empty(n_heads, d_a))

    def matrices(self) -> Float[Tensor, "H A D"]:
        return self.query

    def keys(self, k: Float[Tensor, "B S K D"]) -> Float[Tensor, "B S K A"]:
        return torch.einsum("bskd,kad->bska", k, self.key)

    def comparison(self) -> Comparison:
        return Sum(self.v)


@dataclass(frozen=True, eq=False)
class Sum(Comparison):
    """vᵀ tanh(q + k)."""

    v: Float[Tensor, "H A"]

    def __call__(self, q: Float[Tensor, "B H T A"], k: Float[Tensor, "B H S A"]) -> Float[Tensor, "B H T S"]:
        bent = torch.tanh(q.unsqueeze(3) + k.unsqueeze(2))
        v = self.v.to(bent.dtype)
        return bent @ v[0] if len(v) == 1 else (bent @ v[:, None, :, None]).squeeze(-1)

    def of(self, heads: Tensor) -> Comparison:
        return replace(self, v=self.v[heads])


class Concat(Additive, kind="concat"):
    """vᵀ tanh(W [q; k]) (Luong et al. 2015, eq. 8, concat): `Additive` with one matrix for both, never concatenated."""

    def _module(self, d_query: int, d_key: int, n_heads: int, n_kv_heads: int) -> ScoreModule:
        return JointPerceptron(self.width(d_key), d_query, d_key, n_heads, n_kv_heads)

    def cost(
        self, d_query: int, d_key: int, n_heads: int = 1, n_kv_heads: int = 1, queries: int = 0, keys: int = 0
    ) -> Cost:
        d_a, apart = self.width(d_key), super().cost(d_query, d_key, n_heads, n_kv_heads, queries, keys)
        return Cost(n_kv_heads * d_a * (d_query + d_key) + n_heads * d_a, apart.flops)


class JointPerceptron(ScoreModule):
    """The module of `Concat`: `weight` (K, d_a, d_query + d_key), shared by the H/K heads of queries, and `v` (H, d_a)."""

    def __init__(self, d_a: int, d_query: int, d_key: int, n_heads: int, n_kv_heads: int) -> None:
        super().__init__()
        self.d_query, self.group = d_query, n_heads // n_kv_heads
        self.weight = nn.Parameter(torch.empty(n_kv_heads, d_a, d_query + d_key))
        self.v = nn.Parameter(torch.empty(n_heads, d_a))

    def matrices(self) -> Float[Tensor, "H A D"]:
        return self.weight[..., : self.d_query].repeat_interleave(self.group, 0)

    def keys(self, k: Float[Tensor, "B S K D"]) -> Float[Tensor, "B S K A"]:
        return torch.einsum("bskd,kad->bska", k, self.weight[..., self.d_query :])

    def comparison(self) -> Comparison:
        return Sum(self.v)


class Gaussian(Score, kind="gaussian"):
    """−‖q − k‖² / 2σ², so that weights are a Gaussian kernel's (Nadaraya 1964; Watson 1964).

    `sigma` is σ, or where it is `learned` what it begins with, for each head by itself.
    """

    sigma: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    learned: bool = False

    def _module(self, d_query: int, d_key: int, n_heads: int, n_kv_heads: int) -> ScoreModule:
        return Kernel(self.sigma, self.learned, n_heads)

    def cost(
        self, d_query: int, d_key: int, n_heads: int = 1, n_kv_heads: int = 1, queries: int = 0, keys: int = 0
    ) -> Cost:
        return Cost(n_heads * self.learned)


class Kernel(ScoreModule):
    """The module of `Gaussian`: `log_sigma` (H, 1) where it is learned; as a logarithm it can't become negative."""

    def __init__(self, sigma: float, learned: bool, n_heads: int) -> None:
        super().__init__()
        self.start = math.log(sigma)
        fixed = torch.full((n_heads, 1), self.start)
        self.register_buffer("log_sigma", fixed, persistent=False) if not learned else self.register_parameter(
            "log_sigma", nn.Parameter(fixed)
        )

    log_sigma: Tensor

    def initial(self, name: str) -> float:
        return self.start

    def comparison(self) -> Comparison:
        return Distance(self.log_sigma)


@dataclass(frozen=True, eq=False)
class Distance(Comparison):
    """−‖q − k‖² / 2σ², from differences: of products the small ones would be lost."""

    log_sigma: Float[Tensor, "H 1"]

    def __call__(self, q: Float[Tensor, "B H T A"], k: Float[Tensor, "B H S A"]) -> Float[Tensor, "B H T S"]:
        squares = (q.unsqueeze(3) - k.unsqueeze(2)).square().sum(-1)
        return squares * (-0.5 * torch.exp(-2 * self.log_sigma.to(squares.dtype)))[..., None]

    def of(self, heads: Tensor) -> Comparison:
        return replace(self, log_sigma=self.log_sigma[heads])


class ExactMatch(Score, kind="exact-match"):
    """0 where q equals k, −∞ elsewhere: what a dictionary does. Equal keys share the weight; with none, the result is 0."""

    def _module(self, d_query: int, d_key: int, n_heads: int, n_kv_heads: int) -> ScoreModule:
        return Kronecker()


class Kronecker(ScoreModule):
    """The module of `ExactMatch`."""

    def comparison(self) -> Comparison:
        return Equality()


@dataclass(frozen=True, eq=False)
class Equality(Comparison):
    """log δ(q, k)."""

    def __call__(self, q: Float[Tensor, "B H T A"], k: Float[Tensor, "B H S A"]) -> Float[Tensor, "B H T S"]:
        differs = (q.unsqueeze(3) != k.unsqueeze(2)).any(-1)
        return torch.zeros(differs.shape, dtype=q.dtype, device=q.device).masked_fill(differs, float("-inf"))
