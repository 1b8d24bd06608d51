"""How much of each source token a recurrent decoder takes at a step: alignments over all of them, or over a window."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...attention.scores import Score, ScoreModule
from ...layers.linear import Linear
from ...layers.shared_matrix import Shared
from .decoder import Widths
from .encoder import Memory

Ask = Callable[[Float[Tensor, "B G"]], Float[Tensor, "B A"]]


class Align(nn.Module):
    """a_t = softmax_j score(g_t, h_j) over a source's real tokens, or over a window of them."""

    def __init__(self, score: Score, w: Widths) -> None:
        super().__init__()
        self.score = score.module(w.d_s, w.d_m)

    def keys(self, memory: Memory) -> Float[Tensor, "B S 1 A"]:
        """What a source's tokens are when they are looked at, made once a sentence."""
        return self.score.keys(memory.states[:, :, None])

    def forward(
        self,
        g: Float[Tensor, "B T G"],
        memory: Memory,
        ask: Ask | None = None,
        place: Float[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T S"]:
        """`ask` is what `asking` made before a loop over steps; without, all steps are here."""
        return torch.softmax(_hidden(self.scores(g, memory, ask), _padding(memory)), -1)

    def asking(self) -> Ask:
        """W_s g for a loop over steps."""
        matrices = self.score.matrices()
        return (lambda g: g) if matrices is None else Shared(matrices[0].mT)

    def scores(self, g: Float[Tensor, "B T G"], memory: Memory, ask: Ask | None) -> Float[Tensor, "B T S"]:
        assert memory.keys is not None
        q = self.score.queries(g[:, :, None]) if ask is None else ask(g[:, 0])[:, None, None]
        k = memory.keys
        comparison = self.score.comparison()
        if comparison is not None:
            return comparison(q.transpose(1, 2), k.transpose(1, 2))[:, 0]
        scale = q.shape[-1] ** -0.5 if self.score.scale is None else self.score.scale
        return torch.bmm(q[:, :, 0] * scale, k[:, :, 0].mT)


class Windowed(Align):
    """Luong's local attention (2015, §3.2): only keys at most `reach` from p_t, which is

    monotonic (local-m):  t, and at most the source's last token,
    predictive (local-p): S · σ(vᵀ tanh(W g_t)), and weights are multiplied by exp(−(j − p_t)² / 2σ²), σ = reach / 2.
    """

    def __init__(self, score: Score, w: Widths, reach: int, predictive: bool) -> None:
        super().__init__(score, w)
        self.reach = reach
        layers = (Linear(w.d_s, w.d_s, bias=False), nn.Tanh(), Linear(w.d_s, 1, bias=False)) if predictive else ()
        self.predict = nn.Sequential(*layers) if layers else None

    def forward(
        self,
        g: Float[Tensor, "B T G"],
        memory: Memory,
        ask: Ask | None = None,
        place: Float[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T S"]:
        number = _numbers(memory).to(g.dtype)[:, None]
        last = number[..., -1]
        if self.predict is None:
            assert place is not None
            center = torch.minimum(place.to(g.dtype), last)[..., None]
        else:
            center = (last[..., None] + 1) * torch.sigmoid(self.predict(g))
        away = number - center
        outside = (away.abs() > self.reach) | ~memory.layout.valid[:, None]
        weights = torch.softmax(_hidden(self.scores(g, memory, ask), outside), -1)
        return weights if self.predict is None else weights * torch.exp(away.square() * (-2 / self.reach**2))


class Located(Align):
    """Weights by place alone, a_t = softmax(W_a g_t) (Luong et al. 2015, eq. 9): row j of W_a is to token j what a key is.

    W_a has `longest` rows, and tokens after that are never looked at.
    """

    def __init__(self, w: Widths, longest: int) -> None:
        nn.Module.__init__(self)
        self.score, self.longest = ScoreModule(), longest
        self.weight = nn.Parameter(torch.empty(longest, w.d_s))

    def keys(self, memory: Memory) -> Float[Tensor, "B S 1 A"]:
        rows = self.weight[_numbers(memory).clamp(0, self.longest - 1)]
        return rows.expand(len(memory.states), -1, -1)[:, :, None]  # of a batch without padding there was one row

    def scores(self, g: Float[Tensor, "B T G"], memory: Memory, ask: Ask | None) -> Float[Tensor, "B T S"]:
        found = super().scores(g, memory, ask)
        return _hidden(found, (_numbers(memory) >= self.longest)[:, None]) if found.shape[-1] > self.longest else found


def _numbers(memory: Memory) -> Int[Tensor, "B S"]:
    """Which token of its row stands in each column, counted from 0."""
    return memory.layout.valid.cumsum(1) - 1


def _padding(memory: Memory) -> Tensor | None:
    """(B, 1, S), True where there is no token."""
    return None if memory.layout.padding == "none" else ~memory.layout.valid[:, None]


def _hidden(scores: Tensor, hidden: Tensor | None) -> Tensor:
    return scores if hidden is None else scores.masked_fill(hidden, float("-inf"))
