"""Feature maps of linear attention: φ(q)·φ(k) in place of exp(scale · q·k) — elu + 1, ReLU, and FAVOR+ random features."""

from __future__ import annotations

import math
import zlib
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from ...core.spec import Spec


class Features(NamedTuple):
    """φ = `values` · e^`log` ≥ 0; a missing `log` is 0.

    The factor of each token keeps exponentials in range and has no gradient.
    """

    values: Float[Tensor, "B T H R"]
    log: Float[Tensor, "B T H"] | None = None


class FeatureMap(Spec, role="feature-map"):
    """A map φ of queries and keys. Subclasses define `features`.

    Queries and keys are already multiplied by √scale, in fp32 or wider. `has_log`: whether its features have a log.
    """

    has_log: ClassVar[bool] = False

    def features(self, x: Float[Tensor, "B T H D"], directions: Float[Tensor, "R D"] | None) -> Features:
        raise NotImplementedError(f"{type(self).__name__} does not define `features`")

    def width(self, d_head: int) -> int:
        """R, the number of features."""
        return d_head

    def scale(self, d_head: int) -> float:
        """The default scale of scores."""
        return 1.0

    def flops(self, d_head: int) -> int:
        """FLOPs of mapping one vector."""
        return 0

    def directions(self, d_head: int, name: str) -> Float[Tensor, "R D"] | None:
        """Random directions for the layer of this name; None for maps without them."""
        return None


class Elu1(FeatureMap, kind="elu1"):
    """φ(x) = elu(x) + 1: x + 1 above 0 and eˣ below (Katharopoulos et al. 2020, eq. 7)."""

    def features(self, x: Tensor, directions: Tensor | None = None) -> Features:
        return Features(torch.where(x > 0, x + 1, x.clamp(max=0).exp()))  # elu(x) + 1 would round small values to 0


class Relu(FeatureMap, kind="relu"):
    """φ(x) = max(x, 0) (Choromanski et al. 2021, §4.2, without random directions). A query without any positive feature
    gets 0."""

    def features(self, x: Tensor, directions: Tensor | None = None) -> Features:
        return Features(F.relu(x))


class Favor(FeatureMap, kind="favor"):
    """Positive random features of the soft-max kernel, FAVOR+ (Choromanski et al. 2021, lemma 1 and §2.4):

    φ(x)_i = exp(w_i·x − |x|²/2) / √m,  E φ(q)·φ(k) = exp(q·k)  for w_i ~ N(0, I_D), i = 1 … m = `n_features`.

    `orthogonal` draws the w_i in blocks of D at right angles to one another, their lengths as if they were independent:
    still unbiased, with less variance. The variance grows as e^(|q + k|²) / m, so queries and keys have to be small.
    The factor 1/√m is left out: it cancels where attention divides.
    """

    has_log: ClassVar[bool] = True

    n_features: int = Field(default=256, gt=0)
    seed: int = 0
    orthogonal: bool = True

    def features(self, x: Tensor, directions: Tensor | None = None) -> Features:
        assert directions is not None
        exponent = x @ directions.to(x.dtype).T - x.square().sum(-1, keepdim=True) / 2
        log = exponent.detach().amax(-1)
        return Features((exponent - log[..., None]).exp(), log)

    def width(self, d_head: int) -> int:
        return self.n_features

    def scale(self, d_head: int) -> float:
        return 1.0 / math.sqrt(d_head)

    def flops(self, d_head: int) -> int:
        return 2 * d_head * self.n_features

    def directions(self, d_head: int, name: str) -> Tensor:
        """(m, D) in fp32, the same for the same (seed, name)."""
        generator = torch.Generator().manual_seed(zlib.crc32(f"{self.seed}:{name}".encode()))
        blocks = [self._block(d_head, generator) for _ in range(math.ceil(self.n_features / d_head))]
        return torch.cat(blocks)[: self.n_features].float()

    def _block(self, d: int, generator: torch.Generator) -> Tensor:
        drawn = torch.randn(d, d, generator=generator, dtype=torch.float64, device="cpu")
        if not self.orthogonal:
            return drawn
        q, r = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64, device="cpu"))
        return q.T * r.diagonal().sign()[:, None] * drawn.norm(dim=1, keepdim=True)
