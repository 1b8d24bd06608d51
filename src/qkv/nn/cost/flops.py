"""Parameters and FLOPs of a model, in total and part by part, added up from what each layer counts in its `cost` method."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ...core.spec import Cost
from ..models.base import ModelSpec
from ..models.stack import pairs
from ..models.transformer import Transformer

TRAINING = 3  # forward, and backward for inputs and for weights, each with as many products as forward


@dataclass(frozen=True)
class BatchShape:
    """Shape of a batch: `rows` of `length` tokens, and of `source` tokens for the encoder of an encoder–decoder."""

    rows: int
    length: int
    source: int = 0

    @property
    def tokens(self) -> int:
        return self.rows * (self.length + self.source)

    def __str__(self) -> str:
        return f"{self.rows} × ({self.source} + {self.length})" if self.source else f"{self.rows} × {self.length}"


@dataclass(frozen=True)
class PartCost:
    """Cost of a part of a model over all layers: parameters, and FLOPs of one forward pass of a batch."""

    name: str
    parameters: int
    flops: int


def training_flops(spec: ModelSpec, shape: BatchShape) -> int:
    """FLOPs of one training step of a batch: three forward passes; a multiply-add counts as two."""
    return TRAINING * shape.rows * spec.cost(shape.length, shape.source).flops


def parts(spec: ModelSpec, shape: BatchShape) -> list[PartCost]:
    """Return the cost of each part; the sum is `spec.cost`. Norms, positions and other small parts are `other`."""
    if not isinstance(spec, Transformer):
        return _times_rows(spec.parts(shape.length, shape.source), shape)
    costs: defaultdict[str, Cost] = defaultdict(Cost)
    for stack_name, stack in spec.stacks():
        encodes = stack_name == "encoder" and spec.is_encoder_decoder
        tokens = shape.source if encodes else shape.length
        memory = shape.source if stack_name == "decoder" and spec.is_encoder_decoder else 0
        for layer, (i, block) in enumerate(zip(stack.block_of, stack.layers, strict=True)):
            own = {"attention": block.attention.cost(spec.d_model, tokens, pairs(block.attention, tokens))}
            if block.cross is not None:
                own["cross-attention"] = block.cross.cost(spec.d_model, tokens, tokens * memory, memory)
            own["feed-forward"] = block.feedforward.cost(spec.d_model, tokens)
            shared = i in stack.block_of[:layer]  # with a layer whose parameters are counted already
            for name, cost in own.items():
                costs[f"{stack_name} {name}"] += Cost(0, cost.flops) if shared else cost
    costs["embedding tables"] = Cost(token_tables(spec))
    if spec.head is not None:
        costs["head"] = spec.head.cost_for(spec, shape.length)
    total, known = spec.cost(shape.length, shape.source), sum(costs.values(), Cost())
    costs["other"] = Cost(total.parameters - known.parameters, total.flops - known.flops)
    return _times_rows(costs, shape)


def _times_rows(costs: Mapping[str, Cost], shape: BatchShape) -> list[PartCost]:
    return [PartCost(name, cost.parameters, cost.flops * shape.rows) for name, cost in costs.items()]


def tokens_of(name: str, spec: ModelSpec, shape: BatchShape) -> int:
    """The tokens of a batch that a part reads: source tokens for an encoder, target tokens for a decoder and its head,
    and otherwise all."""
    if not isinstance(spec, Transformer) or not spec.is_encoder_decoder:
        return shape.tokens
    sources, targets = shape.rows * shape.source, shape.rows * shape.length
    return (
        sources if name.startswith("encoder ") else targets if name.startswith(("decoder ", "head")) else shape.tokens
    )


def token_tables(spec: Transformer) -> int:
    """Number of parameters of the token embeddings; a shared table counts once."""
    sizes = []
    for name, stack in spec.stacks():
        own_vocabulary = name == "encoder" and spec.is_encoder_decoder
        vocab_size = (spec.source_vocab_size if own_vocabulary else None) or spec.vocab_size
        sizes.append(stack.embedding.table(vocab_size, spec.d_model))
    return sizes[0] if spec.shares_table else sum(sizes)
