"""Parameters and FLOPs of a model, in all and part by part."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.spec import Cost
from ..models.base import ModelSpec
from ..models.stack import pairs
from ..models.transformer import Transformer

TRAINING = 3  # forward, and backward by inputs and by weights: each as many products as forward


@dataclass(frozen=True)
class Shape:
    """A batch: `rows` of `length` tokens, and of `source` tokens for the encoder where there is one beside a decoder."""

    rows: int
    length: int
    source: int = 0

    @property
    def tokens(self) -> int:
        return self.rows * (self.length + self.source)

    def __str__(self) -> str:
        return f"{self.rows} × ({self.source} + {self.length})" if self.source else f"{self.rows} × {self.length}"


@dataclass(frozen=True)
class Part:
    """A part of a model over all layers: its parameters, and the FLOPs of one forward pass of a batch."""

    name: str
    parameters: int
    flops: int


def training_flops(spec: ModelSpec, shape: Shape) -> int:
    """FLOPs of one training step of a batch: three forward passes' worth, a multiply-add being two."""
    return TRAINING * shape.rows * spec.cost(shape.length, shape.source).flops


def parts(spec: ModelSpec, shape: Shape) -> list[Part]:
    """What the model consists of; sums to `spec.cost`. Norms, positions and what is small besides are `other`."""
    if not isinstance(spec, Transformer):
        named = spec.parts(shape.length, shape.source)
        return [Part(name, cost.parameters, cost.flops * shape.rows) for name, cost in named.items()]
    found: dict[str, Cost] = {}

    def add(name: str, cost: Cost) -> None:
        found[name] = found.get(name, Cost()) + cost

    for stack_name, stack in spec.stacks():
        encodes = stack_name == "encoder" and spec.is_encoder_decoder
        tokens = shape.source if encodes else shape.length
        memory = shape.source if stack_name == "decoder" and spec.is_encoder_decoder else 0
        for layer, (i, block) in enumerate(zip(stack.block_of, stack.layers, strict=True)):
            costs = {"attention": block.attention.cost(spec.d_model, tokens, pairs(block.attention, tokens))}
            if block.cross is not None:
                costs["cross-attention"] = block.cross.cost(spec.d_model, tokens, tokens * memory, memory)
            costs["feed-forward"] = block.feedforward.cost(spec.d_model, tokens)
            shared = i in stack.block_of[:layer]  # with a layer whose parameters are counted already
            for name, cost in costs.items():
                add(f"{stack_name} {name}", Cost(0, cost.flops) if shared else cost)
    tables = _tables(spec)
    add("embedding tables", Cost(tables))
    if spec.head is not None:
        add("head", spec.head.cost_for(spec, shape.length))
    whole = spec.cost(shape.length, shape.source)
    known = sum(found.values(), Cost())
    add("other", Cost(whole.parameters - known.parameters, whole.flops - known.flops))
    return [Part(name, cost.parameters, cost.flops * shape.rows) for name, cost in found.items()]


def _tables(spec: Transformer) -> int:
    """Parameters of the token embeddings, a shared table counted once."""
    sizes = [
        (
            spec.source_vocab_size or spec.vocab_size
            if name == "encoder" and spec.is_encoder_decoder
            else spec.vocab_size
        )
        * stack.embedding.table(1, spec.d_model)
        for name, stack in spec.stacks()
    ]
    return sizes[0] if spec.shares_table else sum(sizes)
