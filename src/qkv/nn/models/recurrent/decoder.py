"""Base classes of recurrent decoders, and those without attention.

The source is one vector, read at every step (Cho et al. 2014) or only as the initial state (Sutskever et al. 2014). Steps
don't depend on single source tokens, so these decoders run in fused kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from ....core.spec import Cost, Spec
from ...layers.linear import Linear
from ...layers.rnn import Cell, PaddedRows, Recurrence, States, rnn_flops, rnn_parameters
from .encoder import EncodedSource

DecoderState = dict[str, Float[Tensor, "L B D"]]  # carried from one call to the next, in caches too


class DecoderWidths(NamedTuple):
    """Sizes that a decoder depends on. d_e: embeddings; d_s: its states; d_m: memory, both directions; d_h: one direction.

    `fits`: the encoder's last states have the shapes of the decoder's first ones, layer by layer.
    `connections`: those of a deep stack (`deep.Connections`); None for layers that read only the layer below.
    """

    cell: Cell
    d_e: int
    d_s: int
    d_m: int
    d_h: int
    n_layers: int
    dropout: float
    fits: bool
    connections: Spec | None = None


class KeptElements(NamedTuple):
    """Elements that decoding keeps per row and per source token, and how many of the latter each step reads."""

    row: int
    source: int = 0
    read: int = 0


class Context(Spec, role="context"):
    """Base class of contexts: what a recurrent decoder reads of the source when it predicts a token."""

    def width(self, w: DecoderWidths) -> int:
        """Width of the head's input."""
        return w.d_s

    def check(self, w: DecoderWidths) -> None:
        """Raise ValueError for widths that don't fit together."""

    def module(self, w: DecoderWidths) -> RecurrentDecoder:
        raise NotImplementedError

    def cost(self, w: DecoderWidths, tokens: int, source: int) -> dict[str, Cost]:
        """Cost of one sentence by part: `decoder`, `attention` if there is any, `readout`."""
        raise NotImplementedError

    def kept(self, w: DecoderWidths) -> KeptElements:
        """Return the number of elements that decoding keeps."""
        return KeptElements(state_size(w))


class RecurrentDecoder(nn.Module):
    """Base class of the modules of a `Context`. Between two calls its state is a dictionary of tensors (·, B, d)."""

    layers: Recurrence
    bridge: Bridge | None
    wants_finals = False  # whether the encoder has to keep the last states of all its layers

    def prepare(self, memory: EncodedSource) -> EncodedSource:
        """Compute what depends on the source alone, once for each sentence."""
        return memory

    def begin(self, memory: EncodedSource) -> DecoderState:
        """Return the state before the first token: the encoder's last states, or the bridge of the top layer's."""
        if self.bridge is None:
            return as_state(memory.finals)
        assert memory.final is not None
        return as_state(self.bridge(memory.final.flatten(1)))

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        rows: PaddedRows | None,
        memory: EncodedSource,
        state: DecoderState,
        finals: bool,
    ) -> tuple[Float[Tensor, "B T W"], DecoderState]:
        """Return the head's input at each token, and the state after the last one (with `finals`; else it may be empty)."""
        raise NotImplementedError


def recurrent_states(state: DecoderState) -> States:
    """Return the states (h, and c of an LSTM) of a recurrence."""
    return (state["h"], state["c"]) if "c" in state else (state["h"],)


def as_state(states: States | None, **more: Tensor) -> DecoderState:
    """Return the decoder state with these states of the recurrence and further tensors."""
    return {} if states is None else {**dict(zip("hc", states, strict=False)), **more}


class Bridge(nn.Module):
    """Initial states of a decoder from one vector z of the source: tanh(W z + b) for every layer."""

    def __init__(self, d_in: int, w: DecoderWidths) -> None:
        super().__init__()
        self.shape = (1 + (w.cell == "lstm"), w.n_layers, w.d_s)
        self.linear = Linear(d_in, state_size(w))

    def forward(self, z: Float[Tensor, "B D"]) -> States:
        states = torch.tanh(self.linear(z)).to(z.dtype).unflatten(-1, self.shape)
        return tuple(t.contiguous() for t in states.permute(1, 2, 0, 3).unbind(0))


def state_size(w: DecoderWidths) -> int:
    """Number of elements of all states of a decoder, for one row."""
    return (1 + (w.cell == "lstm")) * w.n_layers * w.d_s


class Maxout(nn.Module):
    """Elementwise maximum of two linear maps: the deep output of Cho et al. (2014, §A.1.2; Goodfellow et al. 2013)."""

    def __init__(self, d_in: int, d_o: int) -> None:
        super().__init__()
        self.linear = Linear(d_in, 2 * d_o)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B O"]:
        return self.linear(x).unflatten(-1, (-1, 2)).amax(-1)


def dense(d_in: int, d_out: int, tokens: int = 1, bias: bool = True) -> Cost:
    """Cost of a linear layer."""
    return Cost(d_in * d_out + d_out * bias, 2 * d_in * d_out * tokens)


def recurrence(w: DecoderWidths, d_in: int, tokens: int) -> Cost:
    """Cost of a decoder's recurrent layers."""
    sizes = (w.cell, d_in, w.d_s, w.n_layers)
    return Cost(rnn_parameters(*sizes), rnn_flops(*sizes) * tokens)


class FinalState(Context, kind="final-state"):
    """The decoder's initial states are the encoder's last states, its only source information (Sutskever et al. 2014, §3.1).

    States that don't fit (another cell, width or depth, two directions) go through tanh(W z + b).
    """

    def module(self, w: DecoderWidths) -> RecurrentDecoder:
        return FinalStateDecoder(w)

    def cost(self, w: DecoderWidths, tokens: int, source: int) -> dict[str, Cost]:
        total = recurrence(w, w.d_e, tokens)
        return {"decoder": total if w.fits else total + dense(w.d_m, state_size(w))}


class FinalStateDecoder(RecurrentDecoder):
    """The module of `FinalState`."""

    def __init__(self, w: DecoderWidths) -> None:
        super().__init__()
        self.wants_finals = w.fits
        self.layers = Recurrence(w.cell, w.d_e, w.d_s, w.n_layers, dropout=w.dropout)
        self.bridge = None if w.fits else Bridge(w.d_m, w)

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        rows: PaddedRows | None,
        memory: EncodedSource,
        state: DecoderState,
        finals: bool,
    ) -> tuple[Float[Tensor, "B T W"], DecoderState]:
        out, last = self.layers(x, rows, recurrent_states(state), finals)
        return out, as_state(last)


class FixedContext(Context, kind="fixed-context"):
    """One vector c = tanh(V h_T) of the source, which the decoder reads at every step (Cho et al. 2014, §2.2):

        s_0 = tanh(V' c),   s_t = f(s_{t−1}, [E y_{t−1}; c]),   maxout(U s_t + V E y_{t−1} + C c) to the head.

    `d_o` is the width of the maxout, by default that of embeddings.
    """

    d_o: int | None = Field(default=None, gt=0)

    def width(self, w: DecoderWidths) -> int:
        return self.d_o or w.d_e

    def module(self, w: DecoderWidths) -> RecurrentDecoder:
        return FixedContextDecoder(w, self.width(w))

    def cost(self, w: DecoderWidths, tokens: int, source: int) -> dict[str, Cost]:
        begin = dense(w.d_m, w.d_m) + dense(w.d_m, state_size(w))
        readout = dense(w.d_s + w.d_e + w.d_m, 2 * self.width(w), tokens)
        return {"decoder": recurrence(w, w.d_e + w.d_m, tokens) + begin, "readout": readout}

    def kept(self, w: DecoderWidths) -> KeptElements:
        return KeptElements(state_size(w) + w.d_m)


class FixedContextDecoder(RecurrentDecoder):
    """The module of `FixedContext`."""

    bridge: Bridge

    def __init__(self, w: DecoderWidths, d_o: int) -> None:
        super().__init__()
        self.summary = Linear(w.d_m, w.d_m)
        self.bridge = Bridge(w.d_m, w)
        self.layers = Recurrence(w.cell, w.d_e + w.d_m, w.d_s, w.n_layers, dropout=w.dropout)
        self.readout = Maxout(w.d_s + w.d_e + w.d_m, d_o)

    def begin(self, memory: EncodedSource) -> DecoderState:
        assert memory.final is not None
        z = memory.final.flatten(1)
        c = torch.tanh(self.summary(z)).to(z.dtype)
        return as_state(self.bridge(c), context=c[None])

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        rows: PaddedRows | None,
        memory: EncodedSource,
        state: DecoderState,
        finals: bool,
    ) -> tuple[Float[Tensor, "B T W"], DecoderState]:
        c = state["context"][0][:, None].expand(-1, x.shape[1], -1)
        inputs = torch.cat([x, c], -1)
        s, last = self.layers(inputs, rows, recurrent_states(state), finals)
        return self.readout(torch.cat([s, inputs], -1)), as_state(last, context=state["context"])
