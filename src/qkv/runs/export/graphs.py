"""The graphs of a model that are traced for export, with the names of inputs and outputs that `optimum` has given them.

    model                  decoder: input_ids, attention_mask, position_ids, past_key_values.I.key and .value
                           → logits, present.I.key and .value (other states: `export.states`)
                           encoder: input_ids, attention_mask, token_type_ids, or pixel_values
                           → logits, last_hidden_state, … by the head
    encoder_model          input_ids and attention_mask, or pixel_values → last_hidden_state
    decoder_model          input_ids, encoder_hidden_states, encoder_attention_mask
                           → logits, present.I.decoder.key … present.I.encoder.value
    decoder_with_past_model   input_ids, encoder_attention_mask, past_key_values.I.decoder.key …
                           → logits, present.I.decoder.key and .value

Keys and values are (B, K, length, D). The decoder reads the prompt with a past of length 0, and each step with what the
pass before it has given; all tokens stay in the past, also if a window hides them. `export.recurrent` has the graphs of
recurrent models.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...core.layout import Layout
from ...nn.attention.mixer import Pass
from ...nn.attention.multi_head import MultiHeadAttention
from ...nn.kv_cache.cache import Cache
from ...nn.kv_cache.full import CrossState
from ...nn.layers.embedding import TokenEmbedding
from ...nn.layers.patches import PatchEmbedding, image_layout
from ...nn.models.stack import StackModule
from ...nn.models.transformer import TransformerModel
from . import linear
from .attention import Attend
from .experts import with_traced_experts
from .states import ExportedState, held, is_recurrent, state_of

BATCH, TOKENS, PAST, SOURCE = "batch_size", "sequence_length", "past_sequence_length", "encoder_sequence_length"
TOTAL = "total_sequence_length"
Axes = dict[int, str]


@dataclass(frozen=True, eq=False)
class Graph:
    """A module to trace, with examples of its inputs.

    inputs:  name → example and names of the axes whose size may differ.
    outputs: names in order, and the names of such axes.
    """

    name: str
    module: nn.Module
    inputs: dict[str, tuple[Tensor, Axes]]
    outputs: dict[str, Axes] = field(default_factory=dict)

    def examples(self) -> tuple[list[Tensor]]:
        """The arguments of the module: all inputs as one list."""
        return ([example for example, _ in self.inputs.values()],)


def graphs_of(model: TransformerModel, attend: Attend, every_expert: bool = False) -> list[Graph]:
    """The graphs of a model whose mechanisms were checked (`export.support`), with attention by `attend`.

    every_expert: mixtures multiply all tokens by all experts (`export.experts`).
    """
    model = with_traced_experts(model, every_expert)
    if model.is_encoder_decoder:
        return _encoder_decoder(model, attend)
    if _reads_images(model):
        return [_images(model, attend)]
    generates = model.decoder is not None and model.head is not None and model.spec.predicts_tokens
    return [_decoder(model, attend) if generates else _encoder(model, attend)]


# -- passes through a stack --------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _States:
    """What `StackModule` needs of a cache."""

    layers: list[ExportedState]
    cross: list[CrossState]


def through(
    stack: StackModule,
    x: Tensor,
    layout: Layout,
    attend: Attend,
    *,
    memory: Tensor | None = None,
    memory_layout: Layout | None = None,
    token_types: Tensor | None = None,
    states: _States | None = None,
) -> Float[Tensor, "B T M"]:
    """`StackModule.forward` with other functions for attention."""
    cache = cast(Cache | None, states)
    functions = _OtherFunctions(attend)
    return stack(x, layout, memory, memory_layout, token_types, cache, split=functions)


class _OtherFunctions:
    """A `TokenSplit` that divides nothing, and gives the layers functions that graphs can hold."""

    def __init__(self, attend: Attend) -> None:
        self.attend = attend

    def share(self, run: Pass) -> None:
        run.attend, run.linear = self.attend, linear.by_products

    def own(self, x: Tensor) -> Tensor:
        return x

    whole = own

    def own_randomness(self) -> nullcontext[None]:
        return nullcontext()

    def apply(self, module: nn.Module, x: Tensor, run: Pass, mixes: bool) -> Tensor:
        raise AssertionError("layers are split only if their pass is")


def masked_layout(mask: Int[Tensor, "B T"]) -> Layout:
    """The layout of tokens of which some are padding, anywhere: positions count the real ones."""
    return Layout(torch.where(mask.bool(), mask.cumsum(1) - 1, -1))


def placed(positions: Int[Tensor, "B T"]) -> Layout:
    """The layout of tokens at given positions; what padding among them gives is not read."""
    return Layout(positions, padding="none")


def consecutive(past: int, count: int, device: torch.device) -> tuple[Layout, Layout]:
    """The layouts of `count` unpadded tokens after `past` others, and of all of them."""
    every = torch.arange(past + count, device=device)[None]
    return placed(every[:, past:]), placed(every)


class _Traced(nn.Module):
    """Base class of the modules: `forward` takes a list of the inputs in order."""

    def __init__(self, model: TransformerModel, attend: Attend) -> None:
        super().__init__()
        self.model, self.attend = model, attend


# -- decoders ----------------------------------------------------------------------------------------------------------


class DecoderGraph(_Traced):
    """A pass of a decoder over the next T tokens of each row, with the states after the P before them."""

    def forward(self, inputs: list[Tensor]) -> list[Tensor]:
        ids, mask, positions, *past = inputs
        stack, head = self.model.decoder, self.model.head
        assert stack is not None and head is not None
        keys = masked_layout(mask)
        layout = placed(positions)
        if any(is_recurrent(block.attention) for block in stack.layers):  # a sum has to know what is padding
            new = torch.arange(ids.shape[1], device=ids.device) + (mask.shape[1] - ids.shape[1])
            layout = Layout(torch.where(mask.index_select(1, new).bool(), positions, -1))
        pasts = iter(past)
        states = [
            state_of(block.attention, [next(pasts) for _ in held(block.attention)], keys) for block in stack.layers
        ]
        hidden = through(stack, ids, layout, self.attend, states=_States(states, []))
        return [head(hidden), *(tensor for state in states for tensor in state.present)]


_B, _T, _P, _S = 2, 3, 4, 5  # sizes of the examples, all different


def _decoder(model: TransformerModel, attend: Attend) -> Graph:
    assert model.decoder is not None
    ids = torch.zeros(_B, _T, dtype=torch.int64)
    positions = torch.arange(_P, _P + _T).expand(_B, _T)
    inputs: dict[str, tuple[Tensor, Axes]] = {
        "input_ids": (ids, {0: BATCH, 1: TOKENS}),
        "attention_mask": (torch.ones(_B, _P + _T, dtype=torch.int64), {0: BATCH, 1: TOTAL}),
        "position_ids": (positions.contiguous(), {0: BATCH, 1: TOKENS}),
    }
    outputs: dict[str, Axes] = {"logits": {0: BATCH, 1: TOKENS}}
    for i, block in enumerate(model.decoder.layers):
        for one in held(block.attention):
            inputs[f"past_key_values.{i}.{one.name}"] = (one.example(_B, _P, model.dtype), one.axes(BATCH, PAST))
            outputs[f"present.{i}.{one.name}"] = one.axes(BATCH, TOTAL)
    return Graph("model", DecoderGraph(model, attend), inputs, outputs)


# -- encoders ----------------------------------------------------------------------------------------------------------


class EncoderGraph(_Traced):
    """A pass over whole texts, with the output of the heads."""

    def forward(self, inputs: list[Tensor]) -> list[Tensor]:
        ids, mask, *types = inputs
        stack = self.model._output
        layout = masked_layout(mask)
        hidden = through(stack, ids, layout, self.attend, token_types=types[0] if types else None)
        return _headed(self.model, hidden, layout)


class ImageGraph(_Traced):
    """A pass over images, with the output of the heads."""

    def __init__(self, model: TransformerModel, attend: Attend, bare: bool = False) -> None:
        super().__init__(model, attend)
        self.bare = bare

    def forward(self, inputs: list[Tensor]) -> list[Tensor]:
        (pixels,) = inputs
        stack = self.model.encoder if self.bare and self.model.encoder is not None else self.model._output
        assert isinstance(stack.embedding, PatchEmbedding)
        patches, layout = stack.embedding.lay(pixels, image_layout(stack.embedding.spec.grid))
        hidden = through(stack, patches, layout, self.attend)
        return [hidden] if self.bare else _headed(self.model, hidden, layout, pixels)


def _headed(
    model: TransformerModel, hidden: Float[Tensor, "B T M"], layout: Layout, pixels: Tensor | None = None
) -> list[Tensor]:
    """The outputs of a model's heads; without a head the hidden states, and with a pooler its vector too."""
    head, second = model.head, model.classification_head
    if head is None:
        return [hidden] if second is None else [hidden, second(hidden, layout)]
    inputs: dict[str, Any] = {"layout": layout} if head.takes_layout else {}
    inputs |= {"pixels": pixels} if head.takes_pixels else {}
    out = head(hidden, **inputs)
    kind = model.spec.head.kind if model.spec.head is not None else ""
    if kind == "span":
        return list(out.unbind(-1))
    if kind == "sentence-vector":
        return [hidden, out]
    return [out] if isinstance(out, Tensor) else list(out)


def _output_names(model: TransformerModel) -> dict[str, Axes]:
    """The names of what `_headed` returns."""
    each, one = {0: BATCH, 1: TOKENS}, {0: BATCH}
    head = model.spec.head
    if head is None:
        pooled = {} if model.classification_head is None else {"pooler_output": one}
        return {"last_hidden_state": each, **pooled}
    if head.kind == "span":
        return {"start_logits": each, "end_logits": each}
    if head.kind == "sentence-vector":
        return {"token_embeddings": each, "sentence_embedding": one}
    if head.kind == "detector":
        return {"logits": one, "pred_boxes": one}
    return {"logits": one if head.labels_sequences else each}


def _token_inputs(embedding: nn.Module) -> dict[str, tuple[Tensor, Axes]]:
    axes = {0: BATCH, 1: TOKENS}
    inputs = {name: (torch.ones(_B, _S, dtype=torch.int64), axes) for name in ("input_ids", "attention_mask")}
    if isinstance(embedding, TokenEmbedding) and embedding.types is not None and len(embedding.types) > 1:
        inputs["token_type_ids"] = (torch.zeros(_B, _S, dtype=torch.int64), axes)
    return inputs


def _encoder(model: TransformerModel, attend: Attend) -> Graph:
    return Graph("model", EncoderGraph(model, attend), _token_inputs(model._output.embedding), _output_names(model))


def _images(model: TransformerModel, attend: Attend) -> Graph:
    names = {name: {0: BATCH} for name in _output_names(model)}
    return Graph("model", ImageGraph(model, attend), _pixels(model._output), names)


def _pixels(stack: StackModule) -> dict[str, tuple[Tensor, Axes]]:
    assert isinstance(stack.embedding, PatchEmbedding)
    spec = stack.embedding.spec
    example = torch.zeros(_B, spec.channels, *spec.image, dtype=stack.embedding.weight.dtype)
    return {"pixel_values": (example, {0: BATCH})}


def _reads_images(model: TransformerModel) -> bool:
    first = model.encoder if model.encoder is not None else model._output
    return isinstance(first.embedding, PatchEmbedding)


# -- encoder–decoders --------------------------------------------------------------------------------------------------


class SourceGraph(_Traced):
    """The encoder of an encoder–decoder."""

    def forward(self, inputs: list[Tensor]) -> list[Tensor]:
        ids, mask, *types = inputs
        assert self.model.encoder is not None
        layout = masked_layout(mask)
        return [through(self.model.encoder, ids, layout, self.attend, token_types=types[0] if types else None)]


class FirstTargetGraph(_Traced):
    """The decoder's pass over the beginning of the target: projects the encoder's output to keys and values."""

    def forward(self, inputs: list[Tensor]) -> list[Tensor]:
        ids, memory, *mask = inputs
        stack, head = self.model.decoder, self.model.head
        assert stack is not None and head is not None
        layout, keys = consecutive(0, ids.shape[1], ids.device)
        source = masked_layout(mask[0]) if mask else consecutive(0, memory.shape[1], memory.device)[1]
        states = [state_of(block.attention, [], keys) for block in stack.layers]
        cross = [CrossState() for _ in stack.layers]
        for block, state in zip(stack.layers, cross, strict=True):
            assert isinstance(block.cross, MultiHeadAttention)
            block.cross.remember(memory, source, state)
        hidden = through(stack, ids, layout, self.attend, states=_States(states, cross))
        out = [head(hidden)]
        for own, other in zip(states, cross, strict=True):
            out += [*own.present, *(x.transpose(1, 2) for x in other.keys_values)]
        return out


class NextTargetGraph(_Traced):
    """A decoding step of an encoder–decoder, with the states of the target so far and the keys and values of the source."""

    def forward(self, inputs: list[Tensor]) -> list[Tensor]:
        masked = self.model.encoder is not None and not _reads_images(self.model)
        ids, *given = inputs
        stack, head = self.model.decoder, self.model.head
        assert stack is not None and head is not None
        mask = given.pop(0) if masked else None
        positions = None if _counts_tokens(stack) else given.pop(0)
        own: list[list[Tensor]] = []
        sources: list[list[Tensor]] = []
        for block in stack.layers:
            count = len(held(block.attention))
            own.append(given[:count])
            sources.append(given[count : count + 2])
            given = given[count + 2 :]
        if positions is None:
            past = next(state for state, layer in zip(own, stack.layers, strict=True) if _grows(layer.attention))
            layout, keys = consecutive(past[0].shape[2], ids.shape[1], ids.device)
        else:
            layout = keys = placed(positions)
        source = masked_layout(mask) if mask is not None else consecutive(0, sources[0][0].shape[2], ids.device)[1]
        states = [state_of(block.attention, past, keys) for block, past in zip(stack.layers, own, strict=True)]
        cross = [CrossState() for _ in stack.layers]
        for state, (k, v) in zip(cross, sources, strict=True):
            state.fill(k.transpose(1, 2), v.transpose(1, 2), source)
        hidden = through(stack, ids, layout, self.attend, states=_States(states, cross))
        return [head(hidden), *(x for state in states for x in state.present)]


def _grows(mixer: nn.Module) -> bool:
    return any(one.grows for one in held(mixer))


def _counts_tokens(stack: StackModule) -> bool:
    """Whether the length of some layer's state gives the number of earlier tokens. If not, positions are an input of the
    graph."""
    return any(_grows(block.attention) for block in stack.layers)


def _encoder_decoder(model: TransformerModel, attend: Attend) -> list[Graph]:
    assert model.encoder is not None and model.decoder is not None
    images = _reads_images(model)
    states: dict[str, Axes] = {"last_hidden_state": {0: BATCH} if images else {0: BATCH, 1: TOKENS}}
    if images:
        source = Graph("encoder_model", ImageGraph(model, attend, bare=True), _pixels(model.encoder), states)
    else:
        source = Graph("encoder_model", SourceGraph(model, attend), _token_inputs(model.encoder.embedding), states)
    ids = {"input_ids": (torch.zeros(_B, _T, dtype=torch.int64), {0: BATCH, 1: TOKENS})}
    memory = torch.zeros(_B, _S, model.spec.d_model, dtype=model.dtype)
    mask = {} if images else {"encoder_attention_mask": (torch.ones(_B, _S, dtype=torch.int64), {0: BATCH, 1: SOURCE})}
    first: dict[str, tuple[Tensor, Axes]] = {**ids, "encoder_hidden_states": (memory, {0: BATCH, 1: SOURCE}), **mask}
    past: dict[str, tuple[Tensor, Axes]] = {}
    present: dict[str, Axes] = {"logits": {0: BATCH, 1: TOKENS}}
    for i, block in enumerate(model.decoder.layers):
        for side, mixer, length, axis in (("decoder", block.attention, _P, PAST), ("encoder", block.cross, _S, SOURCE)):
            assert mixer is not None
            after = TOTAL if side == "decoder" else SOURCE
            for one in held(mixer):
                example = one.example(_B, length, model.dtype)
                past[f"past_key_values.{i}.{side}.{one.name}"] = (example, one.axes(BATCH, axis))
                present[f"present.{i}.{side}.{one.name}"] = one.axes(BATCH, after)
    places: dict[str, tuple[Tensor, Axes]] = {}
    if not _counts_tokens(model.decoder):
        places["position_ids"] = (torch.zeros(_B, _T, dtype=torch.int64), {0: BATCH, 1: TOKENS})
    following = {name: axes for name, axes in present.items() if ".encoder." not in name}
    return [
        source,
        Graph("decoder_model", FirstTargetGraph(model, attend), first, present),
        Graph("decoder_with_past_model", NextTargetGraph(model, attend), {**ids, **mask, **places, **past}, following),
    ]
