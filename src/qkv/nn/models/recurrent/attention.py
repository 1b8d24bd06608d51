"""Recurrent decoders with attention to the source: Bahdanau et al. (2015) and Luong et al. (2015).

Everything that does not depend on the previous step is computed for all steps at once. Before the loop, these are the
keys, the states projected by the layer that reads the context (W_c Σ_j a_j h_j = Σ_j a_j W_c h_j), and the inputs of
the gates from the target's embeddings; after it, contexts and output. A step computes scores, a soft-max, one weighted
mean and the cell.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from ....core.layout import Layout
from ....core.spec import Cost
from ...attention import tap
from ...attention.scores import Additive, ExactMatch, General, Score
from ...kernels.plan import Plan
from ...kernels.request import Request
from ...layers.linear import Linear, matrix
from ...layers.rnn import GATES, PaddedRows, Recurrence, States
from ...layers.shared_matrix import Shared
from ...patterns.basic import Full
from .alignment import Align, Located, Windowed
from .decoder import (
    Bridge,
    Context,
    DecoderState,
    DecoderWidths,
    KeptElements,
    Maxout,
    RecurrentDecoder,
    as_state,
    dense,
    recurrence,
    recurrent_states,
    state_size,
)
from .encoder import EncodedSource

NAME = "decoder.cross"  # name of the layer in requests to a tap


class AttentiveDecoder(RecurrentDecoder):
    """Base class of both: keys, projected states, and reports to a tap."""

    align: Align

    def prepare(self, memory: EncodedSource) -> EncodedSource:
        return replace(memory, keys=self.align.keys(memory), projected=self.project(memory.states))

    def project(self, states: Float[Tensor, "B S M"]) -> Float[Tensor, "B S G"]:
        """Return W_c h_j for every token of the source."""
        raise NotImplementedError

    def _report(self, queries: Tensor, weights: Tensor, rows: PaddedRows | None, memory: EncodedSource) -> None:
        """Report the alignment to a tap, as attention of one head whose weights are known."""
        if not tap.recording():
            return
        if rows is not None:
            queries, weights = rows.spread(queries), rows.spread(weights)
        assert memory.keys is not None
        layout, values = Layout.full(queries.shape[1], device=queries.device), memory.states[:, :, None]
        settings = (Full(), layout, memory.layout, None, 1.0, 0.0, None, False, Plan(), NAME)
        tap.offer(Request(queries[:, :, None], memory.keys, values, *settings, known_weights=weights[:, None]))


class RecurrenceSteps:
    """A loop over the steps of a recurrence; with `rows`, states don't change beyond the end of a row."""

    def __init__(self, layers: Recurrence, state: DecoderState, rows: PaddedRows | None, width: int) -> None:
        self.step = layers.by_steps()
        self.states: list[States] = list(zip(*(t.unbind(0) for t in recurrent_states(state)), strict=True))
        device = state["h"].device
        columns = None if rows is None else torch.arange(width, device=device) < rows.ends(device)
        self.real = None if columns is None else columns[..., None].unbind(1)

    @property
    def top(self) -> Float[Tensor, "B G"]:
        return self.states[-1][0]

    def advance(self, gates: Tensor, t: int) -> None:
        """Compute the states after step t from the gates' inputs."""
        layers = zip(self.step(gates, self.states), self.states, strict=True)
        self.states = [tuple(self.update(new, old, t) for new, old in zip(*layer, strict=True)) for layer in layers]

    def update(self, new: Tensor, old: Tensor, t: int) -> Tensor:
        """Return `new` in rows that have a token at step t, else `old`."""
        return new if self.real is None else torch.where(self.real[t], new, old)

    def state(self, **more: Tensor) -> DecoderState:
        """Return the decoder state after the last step, with further tensors."""
        return as_state(tuple(torch.stack(layers) for layers in zip(*self.states, strict=True)), **more)


class Bahdanau(Context, kind="bahdanau"):
    """A context vector for every target token (Bahdanau et al. 2015, §3.1):

        a_t = softmax_j(vᵀ tanh(W_s s_{t−1} + W_h h_j)),   c_t = Σ_j a_{t,j} h_j,   s_t = f(s_{t−1}, [E y_{t−1}; c_t]),
        s_0 = tanh(W ←h_1),   maxout(U s_t + V E y_{t−1} + C c_t) to the head.

    `score` may be another one. `d_o` is the width of the maxout, by default that of embeddings.
    """

    score: Score = Additive()
    d_o: int | None = Field(default=None, gt=0)

    def width(self, w: DecoderWidths) -> int:
        return self.d_o or w.d_e

    def check(self, w: DecoderWidths) -> None:
        check_score(self.score, w)

    def module(self, w: DecoderWidths) -> RecurrentDecoder:
        return BahdanauDecoder(self, w)

    def cost(self, w: DecoderWidths, tokens: int, source: int) -> dict[str, Cost]:
        """W_c h_j is computed once for each source token, and steps take means of that width."""
        d_gates = GATES[w.cell] * w.d_s
        layers, projected = recurrence(w, w.d_e + w.d_m, tokens), 2 * w.d_m * d_gates * (source - tokens)
        return {
            "decoder": layers + Cost(flops=projected) + dense(w.d_h, state_size(w)),
            "attention": attention_cost(self.score, w, tokens, source, w.d_m + d_gates),
            "readout": dense(w.d_s + w.d_e + w.d_m, 2 * self.width(w), tokens),
        }

    def kept(self, w: DecoderWidths) -> KeptElements:
        source = self.score.width(w.d_m) + w.d_m + GATES[w.cell] * w.d_s
        return KeptElements(state_size(w), source, source)


def check_score(score: Score, w: DecoderWidths) -> None:
    """Raise ValueError for a score that suits no learned states."""
    if isinstance(score, ExactMatch):
        raise ValueError("learned states are never equal, so the score exact-match would be 0 everywhere; take another")
    score.check(w.d_s, w.d_m)


def attention_cost(score: Score, w: DecoderWidths, tokens: int, source: int, values: int) -> Cost:
    """Cost of scores, and of weighted means of values of this width."""
    return score.cost(w.d_s, w.d_m, 1, 1, tokens, source) + Cost(
        flops=2 * tokens * source * (score.width(w.d_m) + values)
    )


class BahdanauDecoder(AttentiveDecoder):
    """The module of `Bahdanau`."""

    bridge: Bridge

    def __init__(self, spec: Bahdanau, w: DecoderWidths) -> None:
        super().__init__()
        self.align = Align(spec.score, w)
        self.bridge = Bridge(w.d_h, w)
        self.layers = Recurrence(w.cell, w.d_e + w.d_m, w.d_s, w.n_layers, dropout=w.dropout)
        self.readout = Maxout(w.d_s + w.d_e + w.d_m, spec.width(w))
        self.d_e = w.d_e

    def project(self, states: Float[Tensor, "B S M"]) -> Float[Tensor, "B S G"]:
        return F.linear(states, self.layers.columns(self.d_e))

    def begin(self, memory: EncodedSource) -> DecoderState:
        assert memory.final is not None
        return as_state(self.bridge(memory.final[:, -1]))

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        rows: PaddedRows | None,
        memory: EncodedSource,
        state: DecoderState,
        finals: bool,
    ) -> tuple[Float[Tensor, "B T W"], DecoderState]:
        assert memory.projected is not None
        inputs, contexts = self.layers.read(x).unbind(1), Shared(memory.projected)
        project_query = self.align.query_projection()
        steps = RecurrenceSteps(self.layers, state, rows if finals else None, x.shape[1])
        before, tops, weights = [], [], []
        for t, gates in enumerate(inputs):
            before.append(steps.top)
            weights.append(self.align(steps.top[:, None], memory, project_query))
            steps.advance(gates + contexts(weights[-1].to(gates.dtype))[:, 0], t)
            tops.append(steps.top)
        a, s = torch.cat(weights, 1), torch.stack(tops, 1)
        self._report(torch.stack(before, 1), a, rows, memory)
        c = torch.bmm(a, memory.states.to(a.dtype))
        return self.readout(torch.cat([s, x, c], -1)), steps.state() if finals else {}


class Luong(Context, kind="luong"):
    """Attention after the recurrence (Luong et al. 2015):

        a_t = softmax_j score(s_t, h_j),   c_t = Σ_j a_{t,j} h_j,   s̃_t = tanh(W_c [c_t; s_t]) to the head.

    score:     dot, general or concat (eq. 8), or any other.
    feeding:   the next step reads [E y_t; s̃_t] (§3.3). Without it, the recurrence runs in a fused kernel, and attention
               for all steps at once.
    alignment: over all source tokens (`global`); over those at most `reach` from a position (`monotonic`, `predictive`,
               §3.2); or by `location`, a_t = softmax(W_a s_t) whatever the tokens (eq. 9), over the first `longest`.
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
                f"reach is the size of a window, and {self.alignment} attention has none; take alignment monotonic or "
                "predictive"
            )
        if not located and self._given("longest"):
            raise ValueError("longest is for alignment location, which scores by position; leave it out")
        if located and self._given("score"):
            raise ValueError(
                "alignment location scores by position alone and takes no score; leave it out, or take alignment global"
            )
        return self

    def _given(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).model_fields[name].default)

    def check(self, w: DecoderWidths) -> None:
        if self.alignment != "location":
            check_score(self.score, w)

    def module(self, w: DecoderWidths) -> RecurrentDecoder:
        return LuongDecoder(self, w)

    def align(self, w: DecoderWidths) -> Align:
        if self.alignment == "location":
            return Located(w, self.longest)
        if self.alignment == "global":
            return Align(self.score, w)
        return Windowed(self.score, w, self.reach, self.alignment == "predictive")

    def cost(self, w: DecoderWidths, tokens: int, source: int) -> dict[str, Cost]:
        """A window counts as all tokens, since the scores of all are computed."""
        combine = dense(w.d_s, w.d_s, tokens, bias=False) + dense(w.d_m, w.d_s, source, bias=False)
        window = dense(w.d_s, w.d_s, tokens, False) + dense(w.d_s, 1, tokens, False)
        attention = attention_cost(self.score, w, tokens, source, w.d_s)
        if self.alignment == "location":
            attention = Cost(self.longest * w.d_s, 4 * tokens * source * w.d_s)
        return {
            "decoder": recurrence(w, w.d_e + w.d_s * self.feeding, tokens) + dense(w.d_m, state_size(w)) * (not w.fits),
            "attention": attention + window * (self.alignment == "predictive"),
            "readout": combine,
        }

    def kept(self, w: DecoderWidths) -> KeptElements:
        """A step reads keys and projected states. The states are kept too, but not read."""
        keys = w.d_s if self.alignment == "location" else self.score.width(w.d_m)
        row = state_size(w) + w.d_s * self.feeding + (self.alignment == "monotonic")
        return KeptElements(row, keys + w.d_m + w.d_s, keys + w.d_s)


class LuongDecoder(AttentiveDecoder):
    """The module of `Luong`."""

    def __init__(self, spec: Luong, w: DecoderWidths) -> None:
        super().__init__()
        self.align = spec.align(w)
        self.feeding, self.counting, self.wants_finals = spec.feeding, spec.alignment == "monotonic", w.fits
        self.bridge = None if w.fits else Bridge(w.d_m, w)
        self.layers = Recurrence(w.cell, w.d_e + w.d_s * spec.feeding, w.d_s, w.n_layers, dropout=w.dropout)
        self.combine = Linear(w.d_m + w.d_s, w.d_s, bias=False)
        self.d_m = w.d_m

    def project(self, states: Float[Tensor, "B S M"]) -> Float[Tensor, "B S G"]:
        return F.linear(states, matrix(self.combine)[:, : self.d_m])

    def begin(self, memory: EncodedSource) -> DecoderState:
        state = super().begin(memory)
        zeros = state["h"].new_zeros(1, *state["h"].shape[1:])
        fed = {"fed": zeros} if self.feeding else {}
        return state | fed | ({"place": zeros[..., :1]} if self.counting else {})

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        rows: PaddedRows | None,
        memory: EncodedSource,
        state: DecoderState,
        finals: bool,
    ) -> tuple[Float[Tensor, "B T W"], DecoderState]:
        assert memory.projected is not None
        position = state["place"][0] + torch.arange(x.shape[1], device=x.device) if self.counting else None
        if self.feeding:
            s, a, out, after = self._by_steps(x, rows if finals else None, memory, state, position)
        else:
            s, last = self.layers(x, rows, recurrent_states(state), finals)
            a, w_s = self.align(s, memory, position=position), matrix(self.combine)[:, self.d_m :]
            c = torch.bmm(a.to(memory.projected.dtype), memory.projected)
            out, after = torch.tanh(c + F.linear(s, w_s)), as_state(last)
        self._report(s, a, rows, memory)
        if position is not None and finals:
            count = x.shape[1] if rows is None else rows.ends(x.device)
            after["place"] = state["place"] + count
        return out, after if finals else {}

    def _by_steps(
        self, x: Tensor, rows: PaddedRows | None, memory: EncodedSource, state: DecoderState, position: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, DecoderState]:
        """Return states, weights and s̃ of all steps, each of which reads the previous s̃, and the state after them."""
        assert memory.projected is not None
        contexts, project_query = Shared(memory.projected), self.align.query_projection()
        combine = Shared(matrix(self.combine)[:, self.d_m :].mT)
        feed = Shared(self.layers.columns(x.shape[-1]).mT)
        steps, fed = RecurrenceSteps(self.layers, state, rows, x.shape[1]), state["fed"][0]
        tops, weights, outs = [], [], []
        for t, gates in enumerate(self.layers.read(x).unbind(1)):
            steps.advance(gates + feed(fed), t)
            at = None if position is None else position[:, t : t + 1]
            a = self.align(steps.top[:, None], memory, project_query, at)
            c = contexts(a.to(memory.projected.dtype))[:, 0]
            fed = steps.update(torch.tanh(c + combine(steps.top)).to(x.dtype), fed, t)
            tops.append(steps.top)
            weights.append(a)
            outs.append(fed)
        return torch.stack(tops, 1), torch.cat(weights, 1), torch.stack(outs, 1), steps.state(fed=fed[None])
