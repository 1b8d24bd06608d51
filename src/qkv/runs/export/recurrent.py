"""The graphs of recurrent encoder–decoders, in which every `present` is the `past_key_values` of the next pass.

    encoder_model   input_ids, attention_mask
                    → present.decoder.h, with an LSTM .c, and by the context .context, .fed, .place; with attention
                      present.encoder.states, .keys, .projected
    decoder_model   input_ids (B, 1), with attention encoder_attention_mask, and all of these as past_key_values
                    → logits, present.decoder.h …

States of the decoder are (B, layers, d), the encoder's (B, S, d). The encoder is a loop over tokens (ONNX's Scan) in which
padding, wherever it is, leaves a state as it was. The decoder is one step, so a target that is given is fed token by token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.nn import functional as F

from ...core.layout import Layout
from ...nn.layers.rnn import PaddedRows, Recurrence, States, next_state
from ...nn.models.recurrent.attention import AttentiveDecoder
from ...nn.models.recurrent.decoder import DecoderState
from ...nn.models.recurrent.encoder import EncodedSource, RecurrentEncoder
from ...nn.models.recurrent.model import RecurrentModel
from .experts import sharing_weights
from .graphs import BATCH, SOURCE, TOKENS, Axes, Graph, masked_layout

_B, _S = 2, 5  # sizes of the examples
_SOURCE = ("states", "keys", "projected")


def graphs_of(model: RecurrentModel) -> list[Graph]:
    """The graphs of a recurrent model."""
    model = _with_loops(model)
    ids, mask = (torch.ones(_B, _S, dtype=torch.int64) for _ in range(2))
    with torch.no_grad():
        memory = read(model, ids, masked_layout(mask))
        first = {f"decoder.{name}": t.transpose(0, 1) for name, t in model.decoder.begin(memory).items()}
    kept = first | {f"encoder.{name}": t for name, t in _source(model, memory).items()}
    axes: dict[str, Axes] = {name: {0: BATCH, 1: SOURCE} if name.startswith("encoder") else {0: BATCH} for name in kept}
    tokens = {0: BATCH, 1: TOKENS}
    source = Graph(
        "encoder_model",
        RecurrentSourceGraph(model),
        {"input_ids": (ids, tokens), "attention_mask": (mask, tokens)},
        {f"present.{name}": axes[name] | ({1: TOKENS} if 1 in axes[name] else {}) for name in kept},
    )
    inputs: dict[str, tuple[Tensor, Axes]] = {"input_ids": (ids[:, :1].contiguous(), {0: BATCH})}
    if isinstance(model.decoder, AttentiveDecoder):
        inputs["encoder_attention_mask"] = (mask, {0: BATCH, 1: SOURCE})
    inputs |= {f"past_key_values.{name}": (torch.zeros(t.shape, dtype=t.dtype), axes[name]) for name, t in kept.items()}
    outputs = {"logits": {0: BATCH}} | {f"present.{name}": axes[name] for name in first}
    return [source, Graph("decoder_model", StepGraph(model, list(first)), inputs, outputs)]


class RecurrentSourceGraph(nn.Module):
    """The encoder, and the decoder's state before the first token."""

    def __init__(self, model: RecurrentModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: list[Tensor]) -> list[Tensor]:
        ids, mask = inputs
        memory = read(self.model, ids, masked_layout(mask))
        first = [tensor.transpose(0, 1) for tensor in self.model.decoder.begin(memory).values()]
        return [*first, *_source(self.model, memory).values()]


class StepGraph(nn.Module):
    """A step of the decoder. `names`: of its states."""

    def __init__(self, model: RecurrentModel, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self.names = model, [name.removeprefix("decoder.") for name in names]

    def forward(self, inputs: list[Tensor]) -> list[Tensor]:
        ids, *given = inputs
        decoder = self.model.decoder
        memory = EncodedSource(self.model.embedding.weight.new_empty(0), Layout.full(0))
        if isinstance(decoder, AttentiveDecoder):
            states, keys, projected = given[-len(_SOURCE) :]
            memory = EncodedSource(states, masked_layout(given.pop(0)), keys=keys[:, :, None], projected=projected)
        before: DecoderState = {name: t.transpose(0, 1) for name, t in zip(self.names, given, strict=False)}
        hidden, after = decoder(self.model.embedding(ids, None), None, memory, before, True)
        return [self.model.head(hidden), *(after[name].transpose(0, 1) for name in self.names)]


def _source(model: RecurrentModel, memory: EncodedSource) -> dict[str, Tensor]:
    """What a step reads of the source, (B, S, ·)."""
    if not isinstance(model.decoder, AttentiveDecoder):
        return {}
    assert memory.keys is not None and memory.projected is not None
    return dict(zip(_SOURCE, (memory.states, memory.keys[:, :, 0], memory.projected), strict=True))


# -- the encoder -------------------------------------------------------------------------------------------------------


def read(model: RecurrentModel, ids: Tensor, layout: Layout) -> EncodedSource:
    """`RecurrentModel.read` by loops, for padding anywhere."""
    encoder, real = model.encoder, layout.valid.expand(ids.shape)
    assert isinstance(encoder, RecurrentEncoder)  # `support.check` refuses deep stacks
    x = model.source_embedding(ids.clamp(min=0), None)
    reversed_ = [encoder.reverse] if encoder.layers.directions == 1 else [False, True]
    finals: list[States] = []
    for layer in range(encoder.layers.n_layers):
        sides = [_direction(encoder.layers, layer, backward, x, real) for backward in reversed_]
        x = torch.cat([states for states, _ in sides], -1)
        finals += [last for _, last in sides]
    top = torch.stack([last[0] for last in finals[-len(reversed_) :]], 1)
    every = tuple(torch.stack(layers) for layers in zip(*finals, strict=True))
    return model.decoder.prepare(EncodedSource(x, layout, top, every))


def _direction(
    layers: Recurrence, layer: int, backward: bool, x: Float[Tensor, "B S E"], real: Bool[Tensor, "B S"]
) -> tuple[Float[Tensor, "B S D"], States]:
    """The states of one layer in one direction, and the last of them."""
    suffix = "_reverse" if backward and layers.directions == 2 else ""
    w_ih, w_hh, b_ih, b_hh = layers.weights(layer, suffix)
    gates, tokens = F.linear(x, w_ih, b_ih).transpose(0, 1), real.transpose(0, 1)[..., None]
    if backward:
        gates, tokens = gates.flip(0), tokens.flip(0)
    zero = x.new_zeros(x.shape[0], layers.d_out)
    start: States = (zero, zero.clone()) if layers.cell == "lstm" else (zero,)

    def step(states: States, inputs: tuple[Tensor, Tensor]) -> tuple[States, tuple[Tensor]]:
        gate, here = inputs
        new = next_state(layers.cell, gate, F.linear(states[0], w_hh, b_hh), states)
        kept = tuple(torch.where(here, one, old) for one, old in zip(new, states, strict=True))
        return kept, (kept[0].clone(),)

    last, (out,) = scan(step, start, (gates, tokens), dim=0)
    return (out.flip(0) if backward else out).transpose(0, 1), tuple(last)


# -- the decoder -------------------------------------------------------------------------------------------------------


class LoopedRecurrence(Recurrence):
    """A `Recurrence` in a loop over steps, in place of the fused kernel; with the same parameters."""

    def __init__(self, layers: Recurrence) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(layers.__dict__)

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        rows: PaddedRows | None = None,
        start: States | None = None,
        finals: bool = True,
    ) -> tuple[Float[Tensor, "B T D"], States | None]:
        assert rows is None and start is not None
        step, tops = self.by_steps(), []
        states: list[States] = list(zip(*(t.unbind(0) for t in start), strict=True))
        for gates in self.read(x).unbind(1):
            states = step(gates, states)
            tops.append(states[-1][0])
        return torch.stack(tops, 1), tuple(torch.stack(layers) for layers in zip(*states, strict=True))


def _with_loops(model: RecurrentModel) -> RecurrentModel:
    """A copy that shares the weights, with a decoder whose steps are a loop."""
    made = sharing_weights(model)
    made.decoder.layers = LoopedRecurrence(made.decoder.layers)
    return made
