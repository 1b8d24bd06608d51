"""Score functions, which compare a query and a key before the soft-max: dot products, additive, bilinear, and others.

A score has two parts. Projections of each side, W_s g of a query and W_h h of a key, are computed once a sentence, whatever
the number of queries. Then both are compared: by a dot product, which fused kernels compute, or by another `ScoreFunction`,
for which all T·S scores are computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from ...core.device import KeepsDtype
from ...core.spec import Cost, Spec
from ..kernels.request import ScoreFunction


class Score(Spec, role="score"):
    """A score function. Any attention takes one: `Attention(n_heads=4, score="additive")`."""

    unequal: ClassVar[bool] = False  # whether queries and keys may differ in width

    def width(self, d_key: int) -> int:
        """The width of projected queries and keys, and so of keys in a cache."""
        return d_key

    def module(
        self, d_query: int, d_key: int | None = None, n_heads: int = 1, n_kv_heads: int | None = None
    ) -> ScoreModule:
        """The module with its parameters, for heads of these widths; `n_kv_heads` heads of keys serve `n_heads` of queries.

        Raises ValueError for widths that it can't compare.
        """
        self.check(d_query, d_query if d_key is None else d_key)
        return self._module(d_query, d_query if d_key is None else d_key, n_heads, n_kv_heads or n_heads)

    def _module(self, d_query: int, d_key: int, n_heads: int, n_kv_heads: int) -> ScoreModule:
        return ScoreModule()

    def scorer(self, d_query: int, d_key: int | None = None, *, seed: int = 0) -> ScoreModule:
        """A module to use on its own, with matrices drawn from U(±√(6 / (fan_in + fan_out)))."""
        module = self.module(d_query, d_key)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, value in module.named_parameters():
                start = getattr(module, "initial", None)
                bound = math.sqrt(6 / sum(value.shape[-2:]))
                value.fill_(start(name)) if start else value.uniform_(-bound, bound, generator=generator)
        return module

    def check(self, d_query: int, d_key: int) -> None:
        """Raise ValueError for widths that can't be compared."""
        if d_query != d_key and not self.unequal:
            able = ", ".join(kind for kind, cls in Score.kinds.items() if issubclass(cls, Score) and cls.unequal)
            raise ValueError(
                f"the score {self.kind!r} needs queries and keys of one width, not {d_query} and {d_key}; "
                f"scores for different widths are {able}"
            )

    def cost(
        self, d_query: int, d_key: int, n_heads: int = 1, n_kv_heads: int = 1, queries: int = 0, keys: int = 0
    ) -> Cost:
        """Parameters, and FLOPs of projecting so many queries and keys; comparing a pair takes 2 · width more."""
        return Cost()


class ScoreModule(nn.Module):
    """The module of a `Score`. This base class computes plain dot products, qᵀk."""

    scale: float | None = 1.0  # of dot products; None is 1/√width

    def matrices(self) -> Float[Tensor, "H A D"] | None:
        """W_s of each head; None if queries are not projected."""
        return None

    def queries(self, q: Float[Tensor, "B T H D"]) -> Float[Tensor, "B T H A"]:
        """Projected queries."""
        matrices = self.matrices()
        return q if matrices is None else torch.einsum("bthd,had->btha", q, matrices)

    def keys(self, k: Float[Tensor, "B S K D"]) -> Float[Tensor, "B S K A"]:
        """Projected keys."""
        return k

    def comparison(self) -> ScoreFunction | None:
        """How they are compared; None for dot products."""
        return None


class ScaledDot(Score, kind="scaled-dot"):
    """qᵀk / √d (Vaswani et al. 2017, §3.2.1)."""

    def _module(self, d_query: int, d_key: int, n_heads: int, n_kv_heads: int) -> ScoreModule:
        module = ScoreModule()
        module.scale = None
        return module


class Dot(Score, kind="dot"):
    """qᵀk (Luong et al. 2015, eq. 8, dot)."""


class General(Score, kind="general"):
    """qᵀ W k (Luong et al. 2015, eq. 8, general). W is applied to the query; the comparison is then a dot product."""

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
    """vᵀ tanh(W_s q + W_h k), W_h k computed once a sentence (Bahdanau et al. 2015, §A.1.2). `d_a` is d_key by default."""

    unequal: ClassVar[bool] = True

    d_a: int | None = Field(default=None, gt=0)

    def width(self, d_key: int) -> int:
        return self.d_a or d_key

    def _module(self, d_query: int, d_key: int, n_heads: int, n_kv_heads: int) -> ScoreModule:
        return AdditiveModule(self.width(d_key), d_query, d_key, n_heads, n_kv_heads)

    def cost(
        self, d_query: int, d_key: int, n_heads: int = 1, n_kv_heads: int = 1, queries: int = 0, keys: int = 0
    ) -> Cost:
        d_a = self.width(d_key)
        of_queries, of_keys = n_heads * d_a * d_query, n_kv_heads * d_a * d_key
        return Cost(of_queries + of_keys + n_heads * d_a, 2 * (of_queries * queries + of_keys * keys))


class AdditiveModule(ScoreModule):
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

    def comparison(self) -> ScoreFunction:
        return Sum(self.v)


@dataclass(frozen=True, eq=False)
class Sum(ScoreFunction):
    """vᵀ tanh(q + k)."""

    v: Float[Tensor, "H A"]

    def __call__(self, q: Float[Tensor, "B H T A"], k: Float[Tensor, "B H S A"]) -> Float[Tensor, "B H T S"]:
        bent = torch.tanh(q.unsqueeze(3) + k.unsqueeze(2))
        v = self.v.to(bent.dtype)
        return bent @ v[0] if len(v) == 1 else (bent @ v[:, None, :, None]).squeeze(-1)

    def of(self, heads: Tensor) -> ScoreFunction:
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

    def comparison(self) -> ScoreFunction:
        return Sum(self.v)


class Gaussian(Score, kind="gaussian"):
    """−‖q − k‖² / 2σ², which gives the weights of a Gaussian kernel (Nadaraya 1964; Watson 1964).

    `sigma` is σ; if `learned`, its initial value, with one parameter for each head.
    """

    sigma: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    learned: bool = False

    def _module(self, d_query: int, d_key: int, n_heads: int, n_kv_heads: int) -> ScoreModule:
        return GaussianModule(self.sigma, self.learned, n_heads)

    def cost(
        self, d_query: int, d_key: int, n_heads: int = 1, n_kv_heads: int = 1, queries: int = 0, keys: int = 0
    ) -> Cost:
        return Cost(n_heads * self.learned)


class GaussianModule(KeepsDtype, ScoreModule):
    """The module of `Gaussian`: `log_sigma` (H, 1) if it is learned; as a logarithm, so σ stays positive."""

    def __init__(self, sigma: float, learned: bool, n_heads: int) -> None:
        super().__init__()
        self.start = math.log(sigma)
        if learned:
            self.log_sigma = nn.Parameter(torch.full((n_heads, 1), self.start))
        else:
            exact = torch.promote_types(torch.get_default_dtype(), torch.float32)
            constant = torch.full((n_heads, 1), self.start, dtype=exact)
            self.register_buffer("log_sigma", constant, persistent=False)

    exact: ClassVar[tuple[str, ...]] = ("log_sigma",)  # a constant, unless it is learned
    log_sigma: Tensor

    def initial(self, name: str) -> float:
        return self.start

    def comparison(self) -> ScoreFunction:
        return Distance(self.log_sigma)


@dataclass(frozen=True, eq=False)
class Distance(ScoreFunction):
    """−‖q − k‖² / 2σ², from differences, since products would lose small distances."""

    log_sigma: Float[Tensor, "H 1"]

    def __call__(self, q: Float[Tensor, "B H T A"], k: Float[Tensor, "B H S A"]) -> Float[Tensor, "B H T S"]:
        squares = (q.unsqueeze(3) - k.unsqueeze(2)).square().sum(-1)
        return squares * (-0.5 * torch.exp(-2 * self.log_sigma.to(squares.dtype)))[..., None]

    def of(self, heads: Tensor) -> ScoreFunction:
        return replace(self, log_sigma=self.log_sigma[heads])


class ExactMatch(Score, kind="exact-match"):
    """0 if q equals k, −∞ elsewhere, as a dictionary. Equal keys share the weight; without any, the result is 0."""

    def _module(self, d_query: int, d_key: int, n_heads: int, n_kv_heads: int) -> ScoreModule:
        return Kronecker()


class Kronecker(ScoreModule):
    """The module of `ExactMatch`."""

    def comparison(self) -> ScoreFunction:
        return Equality()


@dataclass(frozen=True, eq=False)
class Equality(ScoreFunction):
    """log δ(q, k)."""

    def __call__(self, q: Float[Tensor, "B H T A"], k: Float[Tensor, "B H S A"]) -> Float[Tensor, "B H T S"]:
        differs = (q.unsqueeze(3) != k.unsqueeze(2)).any(-1)
        return torch.zeros(differs.shape, dtype=q.dtype, device=q.device).masked_fill(differs, float("-inf"))
