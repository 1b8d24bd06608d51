"""Decoders that get a source as one vector: a fixed context at every step (Cho et al. 2014), or at the start alone
(Sutskever et al. 2014). Nothing of the source stands inside the recurrence, so they run in fused kernels."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from ...core.spec import Cost, Spec
from ...layers.linear import Linear
from ...layers.rnn import Cell, Recurrence, Rows, States, rnn_flops, rnn_parameters
from .encoder import Memory

Held = dict[str, Float[Tensor, "L B D"]]  # what a decoder remembers


class Widths(NamedTuple):
    """What a decoder is made for. d_e: embeddings; d_s: its states; d_m: memory, both directions; d_h: one direction.

    `fits`: the encoder's last states are such as the decoder's first ones, layer by layer.
    """

    cell: Cell
    d_e: int
    d_s: int
    d_m: int
    d_h: int
    n_layers: int
    dropout: float
    fits: bool


class Context(Spec, role="context"):
    """What a recurrent decoder knows of the source when it says a token."""

    def width(self, w: Widths) -> int:
        """Of what the head reads."""
        return w.d_s

    def check(self, w: Widths) -> None:
        """Raises ValueError for widths that don't go together."""

    def module(self, w: Widths) -> Decoder:
        raise NotImplementedError

    def cost(self, w: Widths, tokens: int, source: int) -> dict[str, Cost]:
        """Of one sentence, by part: `decoder`, `attention` where there is any, `readout`."""
        raise NotImplementedError


class Decoder(nn.Module):
    """The module of a `Context`. What comes between two calls is a dictionary of states, (·, B, d) each."""

    layers: Recurrence
    wants_finals = False  # of the encoder: the last states of all its layers

    def prepare(self, memory: Memory) -> Memory:
        """What is made once a sentence."""
        return memory

    def begin(self, memory: Memory) -> Held:
        """The states before the first token."""
        raise NotImplementedError

    def forward(
        self, x: Float[Tensor, "B T E"], rows: Rows | None, memory: Memory, held: Held, finals: bool
    ) -> tuple[Float[Tensor, "B T W"], Held]:
        """What the head reads at each token; the states after the last one only where `finals`."""
        raise NotImplementedError


def states_of(held: Held) -> States:
    return (held["h"], held["c"]) if "c" in held else (held["h"],)


def holding(states: States | None, **more: Tensor) -> Held:
    return {} if states is None else {**dict(zip("hc", states, strict=False)), **more}


class Bridge(nn.Module):
    """A decoder's first states, tanh(W z + b) for every layer, of one vector z of the source."""

    def __init__(self, d_in: int, w: Widths) -> None:
        super().__init__()
        self.shape = (1 + (w.cell == "lstm"), w.n_layers, w.d_s)
        self.linear = Linear(d_in, bridged(w))

    def forward(self, z: Float[Tensor, "B D"]) -> States:
        made = torch.tanh(self.linear(z)).to(z.dtype).unflatten(-1, self.shape)
        return tuple(t.contiguous() for t in made.permute(1, 2, 0, 3).unbind(0))


def bridged(w: Widths) -> int:
    """The numbers that a decoder's states are at one token."""
    return (1 + (w.cell == "lstm")) * w.n_layers * w.d_s


class Maxout(nn.Module):
    """max of two linear maps, number by number: the deep output of Cho et al. (2014, §A.1.2; Goodfellow et al. 2013)."""

    def __init__(self, d_in: int, d_o: int) -> None:
        super().__init__()
        self.linear = Linear(d_in, 2 * d_o)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B O"]:
        return self.linear(x).unflatten(-1, (-1, 2)).amax(-1)


def dense(d_in: int, d_out: int, tokens: int = 1, bias: bool = True) -> Cost:
    return Cost(d_in * d_out + d_out * bias, 2 * d_in * d_out * tokens)


def recurrence(w: Widths, d_in: int, tokens: int) -> Cost:
    about = (w.cell, d_in, w.d_s, w.n_layers)
    return Cost(rnn_parameters(*about), rnn_flops(*about) * tokens)


class FinalState(Context, kind="final-state"):
    """The decoder begins in the states that the encoder ended with, and gets nothing else (Sutskever et al. 2014, §3.1).

    Where those don't fit it (other cells, widths, depths, two directions), they go through tanh(W z + b).
    """

    def module(self, w: Widths) -> Decoder:
        return FinalStateDecoder(w)

    def cost(self, w: Widths, tokens: int, source: int) -> dict[str, Cost]:
        total = recurrence(w, w.d_e, tokens)
        return {"decoder": total if w.fits else total + dense(w.d_m, bridged(w))}


class FinalStateDecoder(Decoder):
    """The module of `FinalState`."""

    def __init__(self, w: Widths) -> None:
        super().__init__()
        self.wants_finals = w.fits
        self.layers = Recurrence(w.cell, w.d_e, w.d_s, w.n_layers, dropout=w.dropout)
        self.bridge = None if w.fits else Bridge(w.d_m, w)

    def begin(self, memory: Memory) -> Held:
        if self.bridge is None:
            return holding(memory.finals)
        assert memory.final is not None
        return holding(self.bridge(memory.final.flatten(1)))

    def forward(
        self, x: Float[Tensor, "B T E"], rows: Rows | None, memory: Memory, held: Held, finals: bool
    ) -> tuple[Float[Tensor, "B T W"], Held]:
        out, last = self.layers(x, rows, states_of(held), finals)
        return out, holding(last)


class FixedContext(Context, kind="fixed-context"):
    """One vector c = tanh(V h_T) of the source, which the decoder reads at every step (Cho et al. 2014, §2.2):

        s_0 = tanh(V' c),   s_t = f(s_{t−1}, [E y_{t−1}; c]),   maxout(U s_t + V E y_{t−1} + C c) to the head.

    `d_o` is the width of that maxout, by default that of embeddings.
    """

    d_o: int | None = Field(default=None, gt=0)

    def width(self, w: Widths) -> int:
        return self.d_o or w.d_e

    def module(self, w: Widths) -> Decoder:
        return FixedContextDecoder(w, self.width(w))

    def cost(self, w: Widths, tokens: int, source: int) -> dict[str, Cost]:
        begin = dense(w.d_m, w.d_m) + dense(w.d_m, bridged(w))
        readout = dense(w.d_s + w.d_e + w.d_m, 2 * self.width(w), tokens)
        return {"decoder": recurrence(w, w.d_e + w.d_m, tokens) + begin, "readout": readout}


class FixedContextDecoder(Decoder):
    """The module of `FixedContext`."""

    def __init__(self, w: Widths, d_o: int) -> None:
        super().__init__()
        self.summary = Linear(w.d_m, w.d_m)
        self.bridge = Bridge(w.d_m, w)
        self.layers = Recurrence(w.cell, w.d_e + w.d_m, w.d_s, w.n_layers, dropout=w.dropout)
        self.readout = Maxout(w.d_s + w.d_e + w.d_m, d_o)

    def begin(self, memory: Memory) -> Held:
        assert memory.final is not None
        z = memory.final.flatten(1)
        c = torch.tanh(self.summary(z)).to(z.dtype)
        return holding(self.bridge(c), context=c[None])

    def forward(
        self, x: Float[Tensor, "B T E"], rows: Rows | None, memory: Memory, held: Held, finals: bool
    ) -> tuple[Float[Tensor, "B T W"], Held]:
        c = held["context"][0][:, None].expand(-1, x.shape[1], -1)
        read = torch.cat([x, c], -1)
        s, last = self.layers(read, rows, states_of(held), finals)
        return self.readout(torch.cat([s, read], -1)), holding(last, context=held["context"])
