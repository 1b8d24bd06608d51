"""`Work`: what the layers of a model have to compute and hold, as numbers that can be divided over ranks.

Counted from the spec by the cost formulas of its layers: parameters, FLOPs of products with weights, FLOPs of attention's
scores, and sizes from which bytes of activations follow. Everything is of one row (a sequence).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ...attention.multi_head import Attention
from ...layers.moe import MixtureOfExperts
from ...models.base import ModelSpec
from ...models.stack import pairs
from ...models.transformer import Transformer
from ..flops import TRAINING, Shape, token_tables, training_flops
from .stages import balanced


@dataclass(frozen=True)
class LayerWork:
    """One layer.

    tokens:    of a row.
    whole:     parameters that every rank of a tensor group has. divided: those that are divided over it. experts: those of
               experts, which `expert` ranks divide too.
    matrices:  numbers of the large matrices, which are given to ranks as wholes in ZeRO 1 and 2.
    products, scores: FLOPs of a forward pass, with weights and between tokens.
    inner:     numbers of a token inside the feed-forward layer, of all experts that it uses. gated: its product of two.
    heads, kv_heads, d_head: of attention; 0 heads for another mixer.
    top_k:     experts of a token; 0 without experts.
    """

    tokens: int
    whole: int
    divided: int
    experts: int
    matrices: tuple[int, ...]
    products: float
    scores: float
    d_model: int
    inner: int
    gated: bool
    heads: int
    kv_heads: int
    d_head: int
    sublayers: int
    n_experts: int = 0
    top_k: int = 0
    rotary: bool = False

    @property
    def parameters(self) -> int:
        return self.whole + self.divided + self.experts


@dataclass(frozen=True, eq=False)
class Work:
    """A whole model for rows of one length.

    embedding: parameters of tables. head: parameters of the output layer of its own, `tied` if it uses the table instead.
    outputs:   numbers of a token's logits.
    flops:     model FLOPs of a training step of a row, without recomputation.
    """

    name: str
    layers: tuple[LayerWork, ...]
    length: int
    tokens: int
    d_model: int
    embedding: int
    head: int
    other: int
    head_flops: float
    outputs: int
    tied: bool
    flops: float
    context: int | None
    divisible: bool = True

    @cached_property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers) + self.embedding + self.head + self.other

    @cached_property
    def kinds(self) -> tuple[LayerWork, ...]:
        """The different layers."""
        return tuple(dict.fromkeys(self.layers))

    def stages(self, number: int) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each stage of a pipeline, which kinds of layers it has, and how many of each. The dearest stage costs the
        least that is possible, the output layer included."""
        known: dict[int, Any] = self._stages
        if number not in known:
            costs = [layer.products + layer.scores for layer in self.layers]
            costs[-1] += self.head_flops
            edges = balanced(costs, number)
            known[number] = tuple(
                tuple(sorted(Counter(self._kind_of[edges[i] : edges[i + 1]]).items())) for i in range(number)
            )
        found: tuple[tuple[tuple[int, int], ...], ...] = known[number]
        return found

    @cached_property
    def _stages(self) -> dict[int, Any]:
        return {}

    @cached_property
    def _kind_of(self) -> list[int]:
        places = {layer: i for i, layer in enumerate(self.kinds)}
        return [places[layer] for layer in self.layers]


def work(name: str, spec: ModelSpec, length: int, source: int = 0) -> Work:
    """Count the work of rows of `length` tokens (and `source` ones for the encoder of an encoder–decoder)."""
    shape = Shape(1, length, source)
    if not isinstance(spec, Transformer):
        return _whole(name, spec, shape)
    layers: list[LayerWork] = []
    for stack_name, stack in spec.stacks():
        encodes = stack_name == "encoder" and spec.is_encoder_decoder
        tokens = source if encodes else length
        rotary = type(stack.position).__name__ in ("Rotary", "XPos")
        for place, (i, block) in enumerate(zip(stack.block_of, stack.layers, strict=True)):
            layer = _layer(block, spec.d_model, tokens, source, rotary)
            if i in stack.block_of[:place]:  # shared with a layer that is counted already
                layer = replace(layer, whole=0, divided=0, experts=0, matrices=())
            layers.append(layer)
    total, head = spec.cost(length, source), spec.head
    cost = None if head is None else head.cost_for(spec, length)
    tables = token_tables(spec)
    own = 0 if cost is None else cost.parameters
    flops = 0.0 if cost is None else float(cost.flops)
    outputs = round(flops / (2 * max(length, 1) * spec.d_model))
    rest = total.parameters - sum(layer.parameters for layer in layers) - tables - own
    return Work(
        name,
        tuple(layers),
        length,
        shape.tokens,
        spec.d_model,
        tables,
        own,
        max(rest, 0),
        flops,
        outputs,
        bool(getattr(head, "tied", False)),
        float(training_flops(spec, shape)),
        spec.max_positions,
    )


def _layer(block: Any, d: int, tokens: int, source: int, rotary: bool) -> LayerWork:
    mixer, feedforward = block.attention, block.feedforward
    own = mixer.cost(d, tokens, pairs(mixer, tokens))
    plain = isinstance(mixer, Attention)
    heads, d_head = (mixer.heads(d) or (0, 0)) if plain else (0, 0)
    kv = (getattr(mixer, "n_kv_heads", None) or heads) if plain else 0
    seen = pairs(mixer, tokens)
    scores = 4.0 * seen * heads * d_head
    products = float(own.flops) - scores
    matrices = [d * heads * d_head, d * kv * d_head, d * kv * d_head, d * heads * d_head] if heads else []
    divided, whole = (own.parameters, 0) if heads else (0, own.parameters)
    if block.cross is not None:
        cross = block.cross.cost(d, tokens, tokens * source, source)
        crossed = 4.0 * tokens * source * heads * d_head
        products, scores, divided = products + cross.flops - crossed, scores + crossed, divided + cross.parameters
        matrices += matrices[:4]
    ff = feedforward.cost(d, tokens)
    inner, gated = getattr(feedforward, "d_ff", 0), bool(getattr(feedforward, "gated", False))
    experts, n_experts, top_k = 0, 0, 0
    if isinstance(feedforward, MixtureOfExperts):
        n_experts, top_k = feedforward.n_experts, feedforward.top_k
        one = (2 + gated) * d * inner
        experts, inner = n_experts * one, inner * top_k
        whole += ff.parameters - experts
        matrices += [n_experts * d * feedforward.d_ff] * (2 + gated)
    else:
        divided += ff.parameters
        matrices += [d * inner] * (2 + gated)
    block_cost = block.cost(d)
    whole += max(block_cost.parameters - whole - divided - experts, 0)  # norms
    products += ff.flops
    return LayerWork(
        tokens,
        whole,
        divided,
        experts,
        tuple(matrices),
        products,
        scores,
        d,
        inner,
        gated,
        heads,
        kv,
        d_head,
        len(block.sublayers()),
        n_experts,
        top_k,
        rotary,
    )


def _whole(name: str, spec: ModelSpec, shape: Shape) -> Work:
    """A model of another kind as one layer, whose parameters can be divided by data parallelism only."""
    cost = spec.cost(shape.length, shape.source)
    d = getattr(spec, "d_model", 512)
    layer = LayerWork(
        *(shape.tokens, cost.parameters, 0, 0, (), float(cost.flops), 0.0, d, 4 * d, False, 0, 0, 0, 2),
    )
    flops = TRAINING * float(cost.flops)
    return Work(
        *(name, (layer,), shape.length, shape.tokens, d, 0, 0, 0, 0.0, 0, False, flops, None),
        divisible=False,
    )
