"""Alignment of a recurrent decoder: attention weights over all source tokens, over a window of them, or by position."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...attention.scores import Score, ScoreModule
from ...layers.linear import Linear
from ...layers.shared_matrix import Shared
from .decoder import DecoderWidths
from .encoder import EncodedSource

Projection = Callable[[Float[Tensor, "B G"]], Float[Tensor, "B A"]]


class Align(nn.Module):
    """Global alignment: a_t = softmax_j score(g_t, h_j) over the real tokens of a source."""

    def __init__(self, score: Score, w: DecoderWidths) -> None:
        super().__init__()
        self.score = score.module(w.d_s, w.d_m)

    def keys(self, memory: EncodedSource) -> Float[Tensor, "B S 1 A"]:
        """Return the keys of a source, computed once for each sentence."""
        return self.score.keys(memory.states[:, :, None])

    def forward(
        self,
        g: Float[Tensor, "B T G"],
        memory: EncodedSource,
        project_query: Projection | None = None,
        position: Float[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T S"]:
        """Return a_t. `project_query` is the projection of a loop over single steps; without it g holds all steps."""
        return torch.softmax(_masked(self.scores(g, memory, project_query), _padding(memory)), -1)

    def query_projection(self) -> Projection:
        """Return the projection W_s g for a loop over steps."""
        matrices = self.score.matrices()
        return (lambda g: g) if matrices is None else Shared(matrices[0].mT)

    def scores(
        self, g: Float[Tensor, "B T G"], memory: EncodedSource, project_query: Projection | None
    ) -> Float[Tensor, "B T S"]:
        assert memory.keys is not None
        q = self.score.queries(g[:, :, None]) if project_query is None else project_query(g[:, 0])[:, None, None]
        k = memory.keys
        comparison = self.score.comparison()
        if comparison is not None:
            return comparison(q.transpose(1, 2), k.transpose(1, 2))[:, 0]
        scale = q.shape[-1] ** -0.5 if self.score.scale is None else self.score.scale
        return torch.bmm(q[:, :, 0] * scale, k[:, :, 0].mT)


class Windowed(Align):
    """Luong's local attention (2015, §3.2): only source positions j at most `reach` from p_t, which is

    monotonic (local-m):  t, at most the last token of the source,
    predictive (local-p): S · σ(vᵀ tanh(W g_t)), and weights are multiplied by exp(−(j − p_t)² / 2σ²), σ = reach / 2.
    """

    def __init__(self, score: Score, w: DecoderWidths, reach: int, predictive: bool) -> None:
        super().__init__(score, w)
        self.reach = reach
        layers = (Linear(w.d_s, w.d_s, bias=False), nn.Tanh(), Linear(w.d_s, 1, bias=False)) if predictive else ()
        self.predict = nn.Sequential(*layers) if layers else None

    def forward(
        self,
        g: Float[Tensor, "B T G"],
        memory: EncodedSource,
        project_query: Projection | None = None,
        position: Float[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T S"]:
        positions = _positions(memory).to(g.dtype)[:, None]
        last = positions[..., -1]
        if self.predict is None:
            assert position is not None
            center = torch.minimum(position.to(g.dtype), last)[..., None]
        else:
            center = (last[..., None] + 1) * torch.sigmoid(self.predict(g))
        distance = positions - center
        outside = (distance.abs() > self.reach) | ~memory.layout.valid[:, None]
        weights = torch.softmax(_masked(self.scores(g, memory, project_query), outside), -1)
        return weights if self.predict is None else weights * torch.exp(distance.square() * (-2 / self.reach**2))


class Located(Align):
    """Weights by position alone, a_t = softmax(W_a g_t) (Luong et al. 2015, eq. 9): row j of W_a is the key of token j.

    W_a has `longest` rows, and later tokens have no weight.
    """

    def __init__(self, w: DecoderWidths, longest: int) -> None:
        nn.Module.__init__(self)
        self.score, self.longest = ScoreModule(), longest
        self.weight = nn.Parameter(torch.empty(longest, w.d_s))

    def keys(self, memory: EncodedSource) -> Float[Tensor, "B S 1 A"]:
        rows = self.weight[_positions(memory).clamp(0, self.longest - 1)]
        # A batch without padding has one row of positions.
        return rows.expand(memory.states.shape[0], -1, -1)[:, :, None]

    def scores(
        self, g: Float[Tensor, "B T G"], memory: EncodedSource, project_query: Projection | None
    ) -> Float[Tensor, "B T S"]:
        scores = super().scores(g, memory, project_query)
        if not torch.compiler.is_exporting() and scores.shape[-1] <= self.longest:
            return scores
        return _masked(scores, (_positions(memory) >= self.longest)[:, None])


def _positions(memory: EncodedSource) -> Int[Tensor, "B S"]:
    """Position of each column's token in its row, from 0."""
    return memory.layout.valid.cumsum(1) - 1


def _padding(memory: EncodedSource) -> Tensor | None:
    """(B, 1, S), True at padding; None without padding."""
    return None if memory.layout.padding == "none" else ~memory.layout.valid[:, None]


def _masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    return scores if mask is None else scores.masked_fill(mask, float("-inf"))
