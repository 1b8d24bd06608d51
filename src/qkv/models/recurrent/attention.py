"""Decoders that look at the whole source at every step: Bahdanau et al. (2015) and Luong et al. (2015).

Everything that does not depend on the step before is made for all steps at once: what the source's states are as keys, what
they are to the layer that reads the context (W_c Σ_j a_j h_j = Σ_j a_j W_c h_j), what the target's embeddings give to the
gates, and, after the loop, contexts and output. A step is left with a score, a soft-max, one mean of what was made, and
the cell.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from ...attention import tap
from ...attention.scores import Additive, ExactMatch, General, Score
from ...core.layout import Layout
from ...core.spec import Cost
from ...kernels.plan import Plan
from ...kernels.request import Request
from ...layers.linear import Linear
from ...layers.rnn import GATES, Recurrence, Rows, States
from ...layers.shared_matrix import Shared
from ...patterns.basic import Full
from .alignment import Align, Located, Windowed
from .decoder import Bridge, Context, Decoder, Held, Maxout, Widths, bridged, dense, holding, recurrence, states_of
from .encoder import Memory

NAME = "decoder.cross"  # of the requests that a tap is told of


class AttentiveDecoder(Decoder):
    """What the two have in common: keys, first states, and what a tap is told."""

    align: Align
    bridge: Bridge

    def prepare(self, memory: Memory) -> Memory:
        return replace(memory, keys=self.align.keys(memory), folded=self.fold(memory.states))

    def fold(self, states: Float[Tensor, "B S M"]) -> Float[Tensor, "B S G"]:
        """W_c h_j for every token of the source."""
        raise NotImplementedError

    def _tell(self, queries: Tensor, weights: Tensor, rows: Rows | None, memory: Memory) -> None:
        """The alignment, as attention of one head: the weights are there already."""
        if not tap.recording():
            return
        q, held = (queries, weights) if rows is None else (rows.spread(queries), rows.spread(weights))
        assert memory.keys is not None
        layout, values = Layout.full(q.shape[1], device=q.device), memory.states[:, :, None]
        about = (Full(), layout, memory.layout, None, 1.0, 0.0, None, False, Plan(), NAME)
        tap.offer(Request(q[:, :, None], memory.keys, values, *about, held=held[:, None]))


class Steps:
    """The states of all layers, step by step; rows stay as they are beyond their end where that matters."""

    def __init__(self, layers: Recurrence, held: Held, rows: Rows | None, width: int) -> None:
        self.step = layers.by_steps()
        self.states: list[States] = list(zip(*(t.unbind(0) for t in states_of(held)), strict=True))
        device = held["h"].device
        columns = None if rows is None else torch.arange(width, device=device) < rows.ends(device)
        self.real = None if columns is None else columns[..., None].unbind(1)

    @property
    def top(self) -> Float[Tensor, "B G"]:
        return self.states[-1][0]

    def advance(self, gates: Tensor, t: int) -> None:
        made = self.step(gates, self.states)
        self.states = made if self.real is None else self.kept(made, self.states, t)

    def kept(self, new: list[States], old: list[States], t: int) -> list[States]:
        pairs = zip(new, old, strict=True)
        return [tuple(self.real_or(a, b, t) for a, b in zip(*pair, strict=True)) for pair in pairs]

    def real_or(self, new: Tensor, old: Tensor, t: int) -> Tensor:
        return new if self.real is None else torch.where(self.real[t], new, old)

    def held(self, **more: Tensor) -> Held:
        return holding(tuple(torch.stack(layers) for layers in zip(*self.states, strict=True)), **more)


class Bahdanau(Context, kind="bahdanau"):
    """A context of its own for every target token (Bahdanau et al. 2015, §3.1):

        a_t = softmax_j(vᵀ tanh(W_s s_{t−1} + W_h h_j)),   c_t = Σ_j a_{t,j} h_j,   s_t = f(s_{t−1}, [E y_{t−1}; c_t]),
        s_0 = tanh(W ←h_1),   maxout(U s_t + V E y_{t−1} + C c_t) to the head.

    `score` may be another one. `d_o` is the width of the maxout, by default that of embeddings.
    """

    score: Score = Additive()
    d_o: int | None = Field(default=None, gt=0)

    def width(self, w: Widths) -> int:
        return self.d_o or w.d_e

    def check(self, w: Widths) -> None:
        _check(self.score, w)

    def module(self, w: Widths) -> Decoder:
        return BahdanauDecoder(self, w)

    def cost(self, w: Widths, tokens: int, source: int) -> dict[str, Cost]:
        """W_c h_j is made once a token of the source, and so wide are the means that steps take."""
        read = GATES[w.cell] * w.d_s
        layers, folded = recurrence(w, w.d_e + w.d_m, tokens), 2 * w.d_m * read * (source - tokens)
        return {
            "decoder": layers + Cost(flops=folded) + dense(w.d_h, bridged(w)),
            "attention": _looking(self.score, w, tokens, source, w.d_m + read),
            "readout": dense(w.d_s + w.d_e + w.d_m, 2 * self.width(w), tokens),
        }


def _check(score: Score, w: Widths) -> None:
    if isinstance(score, ExactMatch):
        raise ValueError("learned states are never equal, so the score exact-match would find nothing; take another")
    score.check(w.d_s, w.d_m)


def _looking(score: Score, w: Widths, tokens: int, source: int, values: int) -> Cost:
    """Scores, and means of values that are so wide."""
    return score.cost(w.d_s, w.d_m, 1, 1, tokens, source) + Cost(
        flops=2 * tokens * source * (score.width(w.d_m) + values)
    )


class BahdanauDecoder(AttentiveDecoder):
    """The module of `Bahdanau`."""

    def __init__(self, spec: Bahdanau, w: Widths) -> None:
        super().__init__()
        self.align = Align(spec.score, w)
        self.bridge = Bridge(w.d_h, w)
        self.layers = Recurrence(w.cell, w.d_e + w.d_m, w.d_s, w.n_layers, dropout=w.dropout)
        self.readout = Maxout(w.d_s + w.d_e + w.d_m, spec.width(w))
        self.d_e = w.d_e

    def fold(self, states: Float[Tensor, "B S M"]) -> Float[Tensor, "B S G"]:
        return F.linear(states, self.layers.columns(self.d_e))

    def begin(self, memory: Memory) -> Held:
        assert memory.final is not None
        return holding(self.bridge(memory.final[:, -1]))

    def forward(
        self, x: Float[Tensor, "B T E"], rows: Rows | None, memory: Memory, held: Held, finals: bool
    ) -> tuple[Float[Tensor, "B T W"], Held]:
        assert memory.folded is not None
        read, contexts, ask = self.layers.read(x).unbind(1), Shared(memory.folded), self.align.asking()
        steps = Steps(self.layers, held, rows if finals else None, x.shape[1])
        before, tops, weights = [], [], []
        for t, gates in enumerate(read):
            before.append(steps.top)
            weights.append(self.align(steps.top[:, None], memory, ask))
            steps.advance(gates + contexts(weights[-1].to(gates.dtype))[:, 0], t)
            tops.append(steps.top)
        a, s = torch.cat(weights, 1), torch.stack(tops, 1)
        self._tell(torch.stack(before, 1), a, rows, memory)
        c = torch.bmm(a, memory.states.to(a.dtype))
        return self.readout(torch.cat([s, x, c], -1)), steps.held() if finals else {}


class Luong(Context, kind="luong"):
    """Attention after the recurrence (Luong et al. 2015):

        a_t = softmax_j score(s_t, h_j),   c_t = Σ_j a_{t,j} h_j,   s̃_t = tanh(W_c [c_t; s_t]) to the head.

    score:     dot, general or concat (eq. 8), or any other.
    feeding:   the next step reads [E y_t; s̃_t] (§3.3). Without, the recurrence is a fused kernel's, and all look at once.
    alignment: which keys: all (`global`), or those at most `reach` from a place: `monotonic` or `predictive` (§3.2); or by
               `location`, a_t = softmax(W_a s_t) whatever stands there (eq. 9), over the first `longest` tokens.
    """

    score: Score = General()
    feeding: bool = True
    alignment: Literal["global", "monotonic", "predictive", "location"] = "global"
    reach: int = Field(default=10, gt=0)
    longest: int = Field(default=128, gt=0)

    @model_validator(mode="after")
    def _matters(self) -> Luong:
        local, located = self.alignment in ("monotonic", "predictive"), self.alignment == "location"
        if not local and self._given("reach"):
            raise ValueError(
                f"reach is of a window, and {self.alignment} attention has none; take alignment monotonic or predictive"
            )
        if not located and self._given("longest"):
            raise ValueError("longest is of alignment location, which scores by place; leave it out")
        if located and self._given("score"):
            raise ValueError(
                "alignment location scores by place alone, so it takes no score; leave that out, or align globally"
            )
        return self

    def _given(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).model_fields[name].default)

    def check(self, w: Widths) -> None:
        if self.alignment != "location":
            _check(self.score, w)

    def module(self, w: Widths) -> Decoder:
        return LuongDecoder(self, w)

    def align(self, w: Widths) -> Align:
        if self.alignment == "location":
            return Located(w, self.longest)
        if self.alignment == "global":
            return Align(self.score, w)
        return Windowed(self.score, w, self.reach, self.alignment == "predictive")

    def cost(self, w: Widths, tokens: int, source: int) -> dict[str, Cost]:
        """A window is counted as if all were looked at, which is how it is computed."""
        combine = dense(w.d_s, w.d_s, tokens, bias=False) + dense(w.d_m, w.d_s, source, bias=False)
        window = dense(w.d_s, w.d_s, tokens, False) + dense(w.d_s, 1, tokens, False)
        attention = _looking(self.score, w, tokens, source, w.d_s)
        if self.alignment == "location":
            attention = Cost(self.longest * w.d_s, 4 * tokens * source * w.d_s)
        return {
            "decoder": recurrence(w, w.d_e + w.d_s * self.feeding, tokens) + dense(w.d_m, bridged(w)) * (not w.fits),
            "attention": attention + window * (self.alignment == "predictive"),
            "readout": combine,
        }


class LuongDecoder(AttentiveDecoder):
    """The module of `Luong`."""

    bridge: Bridge | None  # type: ignore[assignment]

    def __init__(self, spec: Luong, w: Widths) -> None:
        super().__init__()
        self.align = spec.align(w)
        self.feeding, self.counting, self.wants_finals = spec.feeding, spec.alignment == "monotonic", w.fits
        self.bridge = None if w.fits else Bridge(w.d_m, w)
        self.layers = Recurrence(w.cell, w.d_e + w.d_s * spec.feeding, w.d_s, w.n_layers, dropout=w.dropout)
        self.combine = Linear(w.d_m + w.d_s, w.d_s, bias=False)
        self.d_m = w.d_m

    def fold(self, states: Float[Tensor, "B S M"]) -> Float[Tensor, "B S G"]:
        return F.linear(states, self.combine.weight[:, : self.d_m])

    def begin(self, memory: Memory) -> Held:
        if self.bridge is None:
            made = holding(memory.finals)
        else:
            assert memory.final is not None
            made = holding(self.bridge(memory.final.flatten(1)))
        nothing = made["h"].new_zeros(1, *made["h"].shape[1:])
        fed = {"fed": nothing} if self.feeding else {}
        return made | fed | ({"place": nothing[..., :1]} if self.counting else {})

    def forward(
        self, x: Float[Tensor, "B T E"], rows: Rows | None, memory: Memory, held: Held, finals: bool
    ) -> tuple[Float[Tensor, "B T W"], Held]:
        assert memory.folded is not None
        place = held["place"][0] + torch.arange(x.shape[1], device=x.device) if self.counting else None
        if self.feeding:
            s, a, out, after = self._by_steps(x, rows if finals else None, memory, held, place)
        else:
            s, last = self.layers(x, rows, states_of(held), finals)
            a, w_s = self.align(s, memory, place=place), self.combine.weight[:, self.d_m :]
            c = torch.bmm(a.to(memory.folded.dtype), memory.folded)
            out, after = torch.tanh(c + F.linear(s, w_s)), holding(last)
        self._tell(s, a, rows, memory)
        if place is not None and finals:
            count = x.shape[1] if rows is None else rows.ends(x.device)
            after["place"] = held["place"] + count
        return out, after if finals else {}

    def _by_steps(
        self, x: Tensor, rows: Rows | None, memory: Memory, held: Held, place: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Held]:
        """States, weights and s̃ of all steps, each of which reads the s̃ of the one before."""
        assert memory.folded is not None
        contexts, ask, combine = (
            Shared(memory.folded),
            self.align.asking(),
            Shared(self.combine.weight[:, self.d_m :].mT),
        )
        feed = Shared(self.layers.columns(x.shape[-1]).mT)
        steps, fed = Steps(self.layers, held, rows, x.shape[1]), held["fed"][0]
        tops, weights, outs = [], [], []
        for t, gates in enumerate(self.layers.read(x).unbind(1)):
            steps.advance(gates + feed(fed), t)
            a = self.align(steps.top[:, None], memory, ask, None if place is None else place[:, t : t + 1])
            c = contexts(a.to(memory.folded.dtype))[:, 0]
            fed = steps.real_or(torch.tanh(c + combine(steps.top)).to(x.dtype), fed, t)
            tops.append(steps.top)
            weights.append(a)
            outs.append(fed)
        return torch.stack(tops, 1), torch.cat(weights, 1), torch.stack(outs, 1), steps.held(fed=fed[None])
