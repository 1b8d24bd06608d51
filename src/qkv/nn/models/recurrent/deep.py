"""Deep recurrent translators: stacks with residual (GNMT) or fast-forward connections (Deep-Att), and their attention.

Layer k reads x_{k−1} and has the states h_k; x_0 are the embeddings:

    residual:      x_k = h_k + x_{k−1} from layer `first` on, below it x_k = h_k               (Wu et al. 2016, §3)
    fast-forward:  x_k = [half of f_k; h_k] with f_k = W_k x_{k−1} + b_k, the input of the gates of layer k, so a
                   path without recurrence runs through all layers                              (Zhou et al. 2016, §3)

Only the bottom layer of the decoder takes part in attention, so all layers above it run over whole sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from ....core.layout import Layout
from ....core.spec import Cost, Spec
from ...attention.scores import Additive, Score
from ...layers.dropout import dropout
from ...layers.linear import Linear
from ...layers.rnn import GATES, Cell, PaddedRows, Recurrence, States, rnn_flops, rnn_parameters, take
from ...layers.shared_matrix import Shared
from .alignment import Align
from .attention import AttentiveDecoder, RecurrenceSteps, attention_cost, check_score
from .decoder import (
    Context,
    DecoderState,
    DecoderWidths,
    KeptElements,
    RecurrentDecoder,
    as_state,
    dense,
    recurrent_states,
    state_size,
)
from .encoder import EncodedSource, check_lengths

Side = Literal["forward", "backward", "both"]


class Connections(Spec, role="connections"):
    """Base class: what a layer of a deep stack hands to the layer above, and the directions of an encoder's layers."""

    gives_gates: bool = False  # whether f_k is needed

    def width(self, cell: Cell, d: int) -> int:
        """Width of x_k, for states of width d."""
        return d

    def joined(self, number: int, x: Tensor, h: Tensor, f: Tensor | None) -> Tensor:
        """x_k of layer `number`, from x_{k−1}, h_k and f_k."""
        raise NotImplementedError

    def columns(self, n_layers: int, directions: int) -> list[list[Side]]:
        """The directions of an encoder's layers, for each of its columns."""
        raise NotImplementedError

    def memory(self, cell: Cell, d: int, n_layers: int, directions: int) -> int:
        """Width of the encoder's output."""
        raise NotImplementedError


class Residual(Connections, kind="residual"):
    """x_k = h_k + x_{k−1} from layer `first` on. With two directions, an encoder's bottom layer has both (GNMT)."""

    first: int = Field(default=3, gt=2)

    def joined(self, number: int, x: Tensor, h: Tensor, f: Tensor | None) -> Tensor:
        return h + x if number >= self.first else h

    def columns(self, n_layers: int, directions: int) -> list[list[Side]]:
        return [["both" if directions == 2 and k == 0 else "forward" for k in range(n_layers)]]

    def memory(self, cell: Cell, d: int, n_layers: int, directions: int) -> int:
        return 2 * d if directions == 2 and n_layers == 1 else d


class FastForward(Connections, kind="fast-forward"):
    """x_k = [half of f_k; h_k]. With two directions, an encoder has two columns whose layers read in turns forward and
    backward, one column against the other (Deep-Att). Its output is W [f; h] of both, `d_memory` wide, and the columns
    themselves without `d_memory`."""

    gives_gates: bool = True
    d_memory: int | None = Field(default=None, gt=0)

    def width(self, cell: Cell, d: int) -> int:
        return GATES[cell] * d // 2 + d

    def joined(self, number: int, x: Tensor, h: Tensor, f: Tensor | None) -> Tensor:
        assert f is not None
        return torch.cat([f[..., : f.shape[-1] // 2], h], -1)

    def columns(self, n_layers: int, directions: int) -> list[list[Side]]:
        turns: list[Side] = ["forward", "backward"]
        if directions == 1:
            return [["forward"] * n_layers]
        return [[turns[(k + column) % 2] for k in range(n_layers)] for column in range(2)]

    def memory(self, cell: Cell, d: int, n_layers: int, directions: int) -> int:
        return self.d_memory or directions * self.both(cell, d)

    def both(self, cell: Cell, d: int) -> int:
        """Width of [f; h]."""
        return (GATES[cell] + 1) * d


class DeepStack(nn.Module):
    """Recurrent layers one above another, numbered from `number`; each also reads a context, `d_context` wide."""

    def __init__(
        self,
        connections: Connections,
        cell: Cell,
        d_in: int,
        d: int,
        sides: Sequence[Side],
        *,
        number: int = 1,
        d_context: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.connections, self.sides, self.number, self.dropout = connections, sides, number, dropout
        self.layers = nn.ModuleList(
            Recurrence(cell, width + d_context, d, 1, 1 + (side == "both"))
            for side, width in zip(sides, stack_widths(connections, cell, d_in, d, sides), strict=True)
        )

    def forward(
        self,
        x: Float[Tensor, "B T X"],
        rows: PaddedRows | None,
        start: list[States] | None = None,
        context: Float[Tensor, "B T C"] | None = None,
        finals: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor | None, list[States | None]]:
        """Return x_n, h_n, f_n (None if connections need none) and with `finals` the last states of each layer."""
        h, f, lasts = x, None, list[States | None]()
        for k, (layer, side) in enumerate(zip(self.layers, self.sides, strict=True)):
            assert isinstance(layer, Recurrence)
            read = x if k == 0 and self.number == 1 else dropout(x, self.dropout, self.training)
            read = read if context is None else torch.cat([read, context.to(read.dtype)], -1)
            turned = _turned(read, rows) if side == "backward" else read
            h, last = layer(turned, rows, None if start is None else start[k], finals)
            h = _turned(h, rows) if side == "backward" else h
            f = layer.read(read) if self.connections.gives_gates else None
            x = self.connections.joined(self.number + k, x, h, f)
            lasts.append(last)
        return x, h, f, lasts


def stack_widths(connections: Connections, cell: Cell, d_in: int, d: int, sides: Sequence[Side]) -> list[int]:
    """The widths that each layer of a stack reads, without a context."""
    above = [2 * d if side == "both" else connections.width(cell, d) for side in sides]
    return [d_in, *above[:-1]][: len(sides)]


def stack_cost(
    connections: Connections, cell: Cell, d_in: int, d: int, sides: Sequence[Side], tokens: int, d_context: int = 0
) -> Cost:
    """Cost of a stack; the gates compute the products of f_k, which count once."""
    total = Cost()
    for side, width in zip(sides, stack_widths(connections, cell, d_in, d, sides), strict=True):
        sizes = (cell, width + d_context, d, 1, 1 + (side == "both"))
        total += Cost(rnn_parameters(*sizes), rnn_flops(*sizes) * tokens)
    return total


def _turned(x: Tensor, rows: PaddedRows | None) -> Tensor:
    return x.flip(1) if rows is None else take(x, rows.reversed(x.shape[1], x.device))


class DeepEncoder(nn.Module):
    """The encoder of a deep translator: the columns of its connections."""

    def __init__(
        self, connections: Connections, cell: Cell, d_in: int, d: int, n_layers: int, directions: int, dropout: float
    ) -> None:
        super().__init__()
        self.connections = connections
        columns = connections.columns(n_layers, directions)
        self.columns = nn.ModuleList(DeepStack(connections, cell, d_in, d, sides, dropout=dropout) for sides in columns)
        width = getattr(connections, "d_memory", None)
        both = (GATES[cell] + 1) * d * len(columns)
        self.project = None if width is None else Linear(both, width, bias=False)

    @staticmethod
    def cost(
        connections: Connections, cell: Cell, d_in: int, d: int, n_layers: int, directions: int, tokens: int
    ) -> Cost:
        columns = connections.columns(n_layers, directions)
        total = sum((stack_cost(connections, cell, d_in, d, sides, tokens) for sides in columns), Cost())
        width = getattr(connections, "d_memory", None)
        both = (GATES[cell] + 1) * d * len(columns)
        return total if width is None else total + dense(both, width, tokens, bias=False)

    def forward(self, x: Float[Tensor, "B S E"], layout: Layout, finals: bool) -> EncodedSource:
        """Encode a source. Raises ValueError if a row has no tokens."""
        rows = PaddedRows.of(layout, len(x))
        check_lengths(x, rows)
        x = x if rows is None else rows.gather(x)
        parts: list[Tensor] = []
        for column in self.columns:
            out, h, f, _ = column(x, rows)
            parts += [out] if f is None else [f, h]
        states = torch.cat(parts, -1) if len(parts) > 1 else parts[0]
        states = states if self.project is None else self.project(states)
        return EncodedSource(states if rows is None else rows.spread(states), layout)


class BottomAttention(Context, kind="bottom-attention"):
    """Attention by the bottom layer of a deep decoder (Wu et al. 2016, §3; Zhou et al. 2016, §3.2), from its last state:

        a_t = softmax_j score(s¹_{t−1}, h_j),   c_t = Σ_j a_{t,j} h_j,   s¹_t = f([E y_{t−1}; c_t], s¹_{t−1}).

    The layers above read c_t too if `everywhere` (GNMT), or only what is below them (Deep-Att). The decoder starts from
    zeros, and the head reads x_n, or h_n if connections are fast-forward.
    """

    score: Score = Additive()
    everywhere: bool = True

    def check(self, w: DecoderWidths) -> None:
        check_score(self.score, w)

    def module(self, w: DecoderWidths) -> RecurrentDecoder:
        return BottomAttentionDecoder(self, w)

    def cost(self, w: DecoderWidths, tokens: int, source: int) -> dict[str, Cost]:
        """W_c h_j is computed once for each source token, and steps take means of that width."""
        d_gates, connections = GATES[w.cell] * w.d_s, connections_of(w)
        bottom = Cost(
            rnn_parameters(w.cell, w.d_e + w.d_m, w.d_s), rnn_flops(w.cell, w.d_e + w.d_m, w.d_s) * tokens
        ) + Cost(flops=2 * w.d_m * d_gates * (source - tokens))
        context, sides = w.d_m * self.everywhere, _upper(w)
        upper = stack_cost(connections, w.cell, connections.width(w.cell, w.d_s), w.d_s, sides, tokens, context)
        return {
            "decoder": bottom + upper,
            "attention": attention_cost(self.score, w, tokens, source, w.d_m + d_gates),
        }

    def kept(self, w: DecoderWidths) -> KeptElements:
        source = self.score.width(w.d_m) + w.d_m + GATES[w.cell] * w.d_s
        return KeptElements(state_size(w), source, source)


def connections_of(w: DecoderWidths) -> Connections:
    """The decoder's connections; without any, no layer is `Residual`."""
    return w.connections if isinstance(w.connections, Connections) else Residual(first=w.n_layers + 3)


def _upper(w: DecoderWidths) -> list[Side]:
    return ["forward"] * (w.n_layers - 1)


class BottomAttentionDecoder(AttentiveDecoder):
    """The module of `BottomAttention`."""

    def __init__(self, spec: BottomAttention, w: DecoderWidths) -> None:
        super().__init__()
        self.align, self.bridge, self.d_e, self.everywhere = Align(spec.score, w), None, w.d_e, spec.everywhere
        self.connections, self.n_layers = connections_of(w), w.n_layers
        self.layers = Recurrence(w.cell, w.d_e + w.d_m, w.d_s)
        width = self.connections.width(w.cell, w.d_s)
        context = w.d_m * spec.everywhere
        self.upper = DeepStack(
            self.connections, w.cell, width, w.d_s, _upper(w), number=2, d_context=context, dropout=w.dropout
        )

    def project(self, states: Float[Tensor, "B S M"]) -> Float[Tensor, "B S G"]:
        return nn.functional.linear(states, self.layers.columns(self.d_e))

    def begin(self, memory: EncodedSource) -> DecoderState:
        zeros = memory.states.new_zeros(self.n_layers, len(memory.states), self.layers.d_out)
        return as_state((zeros, zeros.clone())[: 1 + (self.layers.cell == "lstm")])

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        rows: PaddedRows | None,
        memory: EncodedSource,
        state: DecoderState,
        finals: bool,
    ) -> tuple[Float[Tensor, "B T W"], DecoderState]:
        assert memory.projected is not None
        contexts, project_query = Shared(memory.projected), self.align.query_projection()
        bottom = {name: tensor[:1] for name, tensor in state.items()}
        steps = RecurrenceSteps(self.layers, bottom, rows if finals else None, x.shape[1])
        before, tops, weights, inputs = [], [], [], []
        for t, gates in enumerate(self.layers.read(x).unbind(1)):
            before.append(steps.top)
            weights.append(self.align(steps.top[:, None], memory, project_query))
            inputs.append(gates + contexts(weights[-1].to(gates.dtype))[:, 0])
            steps.advance(inputs[-1], t)
            tops.append(steps.top)
        a, s = torch.cat(weights, 1), torch.stack(tops, 1)
        self._report(torch.stack(before, 1), a, rows, memory)
        c = torch.bmm(a, memory.states.to(a.dtype)) if self.everywhere else None
        x = self.connections.joined(1, s, s, torch.stack(inputs, 1))
        start = [tuple(tensor[k : k + 1] for tensor in recurrent_states(state)) for k in range(1, self.n_layers)]
        out, h, _, lasts = self.upper(x, rows, start, c, finals)
        if self.connections.gives_gates:
            out = h if self.n_layers > 1 else s
        return out, _joined(steps.state(), lasts) if finals else {}


def _joined(bottom: DecoderState, upper: Sequence[States | None]) -> DecoderState:
    """The states of all layers after the last token."""
    layers = [recurrent_states(bottom), *(last for last in upper if last is not None)]
    first, *_ = layers[0]
    return as_state(tuple(torch.cat([one.to(first.dtype) for one in ones]) for ones in zip(*layers, strict=True)))
