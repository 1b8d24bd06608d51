"""`ModelWork`: what the layers of a model have to compute and hold, as numbers that can be divided over ranks.

Counted from the spec by the cost formulas of its layers: parameters, FLOPs of products with weights, FLOPs of attention's
scores, and sizes from which bytes of activations follow. Everything is of one row (a sequence).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from ...attention.linear import LinearAttention
from ...attention.mixer import Mixer
from ...attention.multi_head import Attention
from ...attention.scores import ScaledDot
from ...attention.weighting import Softmax
from ...layers.moe import MixtureOfExperts
from ...models.base import ModelSpec
from ...models.dual_encoder import DualEncoder
from ...models.joint import Joint
from ...models.stack import Stack, pairs
from ...models.transformer import Transformer
from ..flops import TRAINING, BatchShape, token_tables, training_flops
from .rules import TrainedBy
from .stages import balanced

Apart = Literal["keys", "sums", "whole"]


@dataclass(frozen=True)
class LayerWork:
    """One layer.

    tokens:    of a row.
    whole:     parameters that every rank of a tensor group has. divided: those that are divided over it. experts: those of
               experts, which `expert` ranks divide too.
    matrices:  numbers of the large matrices, which are given to ranks as wholes in ZeRO 1 and 2.
    mixing:    FLOPs of a forward pass of the token mixer's products with weights. products: those of the feed-forward layer.
    scores:    between tokens.
    apart:     how the mixer's tokens are divided over context ranks: "keys" travel, "sums" travel (linear attention), or the
               mixer is computed "whole" by every rank. gathers: its keys have to be gathered (`parallel.model_parallel`).
    inner:     numbers of a token inside the feed-forward layer, of all experts that it uses. gated: its product of two.
    heads, kv_heads, d_head: of attention whose heads can be divided; 0 heads for another mixer.
    top_k:     experts of a token; 0 without experts.
    """

    tokens: int
    whole: int
    divided: int
    experts: int
    matrices: tuple[int, ...]
    mixing: float
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
    apart: Apart = "keys"
    gathers: bool = False

    @property
    def parameters(self) -> int:
        return self.whole + self.divided + self.experts

    @property
    def flops(self) -> float:
        """Of a forward pass of a row."""
        return self.mixing + self.products + self.scores

    def over(self, tensor: int) -> LayerWork:
        """The layer on so many tensor ranks, each of which computes a key-value head: a head that several ranks have
        counts that often."""
        more = (tensor - self.kv_heads) * 2 * self.d_model * self.d_head
        if not self.heads or more <= 0:
            return self
        divided = self.divided + (more if self.divided else 0)
        return replace(self, kv_heads=tensor, divided=divided, mixing=self.mixing + 2.0 * self.tokens * more)


@dataclass(frozen=True, eq=False)
class ModelWork:
    """A whole model for rows of one length.

    embedding: parameters of tables. head: parameters of a separate output layer, `tied` if it uses the table instead.
    outputs:   numbers of a token's logits.
    flops:     model FLOPs of a training step of a row, without recomputation.
    transformer, reversible, drops_path: whether the model is a Transformer, has reversible layers, or stochastic depth.
    stacks:    whether it is one or several Transformers, whose tokens can be divided.
    joint:     whether it reads media beside tokens.
    heads:     (heads, key-value heads) of every attention whose heads can be divided.
    kept:      factors that scale activations to their counted size, by kind of recomputation (`tracked.py`).
    """

    name: str
    layers: tuple[LayerWork, ...]
    length: int
    tokens: int
    d_model: int
    flops: float
    embedding: int = 0
    head: int = 0
    other: int = 0
    head_flops: float = 0.0
    outputs: int = 0
    tied: bool = False
    context: int | None = None
    kind: str = "Transformer"
    transformer: bool = True
    stacks: bool = True
    reversible: bool = False
    drops_path: bool = False
    joint: bool = False
    heads: tuple[tuple[int, int], ...] = ()
    trained_by: TrainedBy = field(default_factory=TrainedBy)
    kept: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers) + self.embedding + self.head + self.other

    @cached_property
    def kinds(self) -> tuple[LayerWork, ...]:
        """The different layers."""
        return tuple(dict.fromkeys(self.layers))

    def over(self, tensor: int) -> ModelWork:
        """The model on so many tensor ranks, see `LayerWork.over`."""
        if tensor not in self._over:
            layers = tuple(layer.over(tensor) for layer in self.layers)
            self._over[tensor] = self if layers == self.layers else replace(self, layers=layers)
        return self._over[tensor]

    @cached_property
    def _over(self) -> dict[int, ModelWork]:
        return {}

    def stages(self, number: int) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each stage of a pipeline, which kinds of layers it has, and how many of each. The dearest stage costs the
        least that is possible, the output layer included."""
        known: dict[int, Any] = self._stages
        if number not in known:
            costs = [layer.flops for layer in self.layers]
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


def work(name: str, spec: ModelSpec, length: int, source: int = 0) -> ModelWork:
    """Count the work of rows of `length` tokens (and `source` ones for the encoder of an encoder–decoder)."""
    shape = BatchShape(1, length, source)
    if isinstance(spec, DualEncoder):
        return _towers(name, spec, shape)
    if not isinstance(spec, Transformer):
        return _whole(name, spec, shape)
    layers: list[LayerWork] = []
    for stack_name, stack in spec.stacks():
        encodes = stack_name == "encoder" and spec.is_encoder_decoder
        tokens = source if encodes else length
        rotary = {p: stack.rotates(p, spec.d_model, spec.max_positions) for p in stack.positions}
        for place, (i, block) in enumerate(zip(stack.block_of, stack.layers, strict=True)):
            layer = _layer(block, spec.d_model, tokens, source, rotary[stack.position_of(block)])
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
    return ModelWork(
        name,
        layers=tuple(layers),
        length=length,
        tokens=shape.tokens,
        d_model=spec.d_model,
        embedding=tables,
        head=own,
        other=max(rest, 0),
        head_flops=flops,
        outputs=outputs,
        tied=bool(getattr(head, "tied", False)),
        flops=float(training_flops(spec, shape)),
        context=spec.max_positions,
        kind=spec.kind,
        reversible=any(stack.is_reversible for _, stack in spec.stacks()),
        drops_path=any(stack.drop_path or any(b.drop_path for b in stack.blocks) for _, stack in spec.stacks()),
        joint=any(isinstance(stack.embedding, Joint) for _, stack in spec.stacks()),
        heads=tuple(dict.fromkeys(pair for _, stack in spec.stacks() for pair in _heads(stack, spec.d_model))),
    )


def _heads(stack: Stack, d: int) -> list[tuple[int, int]]:
    """Return the heads and key-value heads of each attention layer that tensor parallelism can divide."""
    mixers = (mixer for block in stack.blocks for mixer in (block.attention, block.cross) if mixer is not None)
    return [mixer.widths(d)[:2] for mixer in mixers if isinstance(mixer, Attention) and _by_heads(mixer)]


def _by_heads(mixer: Mixer) -> bool:
    """Whether tensor parallelism divides a mixer: attention with independent heads and plain projection matrices."""
    if not isinstance(mixer, Attention) or "heads" not in mixer.supports:
        return False
    ranks = (mixer.low_rank.q, mixer.low_rank.k, mixer.low_rank.v, mixer.low_rank.out)
    normed_together = mixer.qk_norm_over == "all" and mixer.qk_norm.kind != "none"
    plain = isinstance(mixer.score, ScaledDot) and not normed_together and not mixer.pattern.per_head
    return plain and ranks == (None, None, None, None)


def _apart(mixer: Mixer) -> Apart:
    has_log = isinstance(mixer, LinearAttention) and mixer.features.has_log  # whose sums have a scale for each rank
    return "whole" if has_log else mixer.divides


def _layer(block: Any, d: int, tokens: int, source: int, rotary: bool) -> LayerWork:
    mixer, feedforward = block.attention, block.feedforward
    own, seen, apart = mixer.cost(d, tokens, pairs(mixer, tokens)), pairs(mixer, tokens), _apart(mixer)
    heads = kv = d_head = 0
    scores = 0.0
    if isinstance(mixer, Attention) and apart == "keys":
        h, k, width, value = mixer.widths(d)
        scores = 2.0 * seen * h * (mixer.score.width(width) + value)
        heads, kv, d_head = (h, k, width) if _by_heads(mixer) else (0, 0, 0)
    mixing = float(own.flops) - scores
    matrices = [d * heads * d_head, d * kv * d_head, d * kv * d_head, d * heads * d_head] if heads else []
    divided, whole = (own.parameters, 0) if heads else (0, own.parameters)
    if isinstance(block.cross, Attention):
        h, k, width, value = block.cross.widths(d)
        cross = block.cross.cost(d, tokens, tokens * source, source)
        crossed = 2.0 * tokens * source * h * (block.cross.score.width(width) + value)
        mixing, scores, divided = mixing + cross.flops - crossed, scores + crossed, divided + cross.parameters
        matrices += [d * h * width, d * k * width, d * k * value, d * h * value]
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
    return LayerWork(
        tokens,
        whole,
        divided,
        experts,
        tuple(matrices),
        mixing,
        float(ff.flops),
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
        apart,
        _gathers(mixer),
    )


def _gathers(mixer: Mixer) -> bool:
    """Whether attention has to gather its keys, because neither ring nor all-to-all supports it
    (`parallel.model_parallel.context`)."""
    others = isinstance(mixer, Attention) and not isinstance(mixer.score, ScaledDot)
    return (
        others or getattr(mixer, "sink", "none") != "none" or not isinstance(getattr(mixer, "weighting", None), Softmax)
    )


def _towers(name: str, spec: DualEncoder, shape: BatchShape) -> ModelWork:
    """Two towers, of which a row has an image and a text."""
    image, text = work(name, spec.image, spec.image_tokens), work(name, spec.text, shape.length)
    return replace(
        text,
        layers=image.layers + text.layers,
        tokens=image.tokens + text.tokens,
        flops=float(training_flops(spec, shape)),
        embedding=image.embedding + text.embedding,
        head=image.head + text.head,
        other=image.other
        + text.other
        + spec.cost().parameters
        - spec.image.cost().parameters
        - spec.text.cost().parameters,
        head_flops=image.head_flops + text.head_flops,
        tied=False,
        kind=spec.kind,
        transformer=False,
        reversible=image.reversible or text.reversible,
        drops_path=image.drops_path or text.drops_path,
        heads=tuple(dict.fromkeys(image.heads + text.heads)),
    )


def _whole(name: str, spec: ModelSpec, shape: BatchShape) -> ModelWork:
    """A model of another kind as one layer, whose parameters can be divided by data parallelism only."""
    cost = spec.cost(shape.length, shape.source)
    d = getattr(spec, "d_model", 512)
    layer = LayerWork(
        *(shape.tokens, cost.parameters, 0, 0, (), 0.0, float(cost.flops), 0.0, d, 4 * d, False, 0, 0, 0, 2),
    )
    flops = TRAINING * float(cost.flops)
    return ModelWork(
        name,
        layers=(layer,),
        length=shape.length,
        tokens=shape.tokens,
        d_model=d,
        flops=flops,
        kind=spec.kind,
        transformer=False,
        stacks=False,
    )
