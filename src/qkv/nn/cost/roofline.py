"""What binds a training step: bytes moved and FLOPs of each component, and their times on a device (the roofline)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ...core import several
from ...core.spec import brief, nearest
from ..models.stack import pairs
from ..models.transformer import Transformer
from .accelerators import Accelerator
from .decoding import Computation
from .flops import TRAINING, BatchShape, training_flops

AttentionKind = Literal["tiled", "materialized", "step-by-step"]  # step-by-step: of recurrent models
WIDTH = {"fp32": 4, "bf16": 2, "fp16": 2}  # bytes of an activation
ADAMW_BYTES = 28  # of a parameter: weight, gradient, two moments read; weight and moments written, in fp32

# Passes over a tensor, reading or writing, in forward and backward together.
SCORES = 10  # scores and weights: written, normalized, and multiplied by values, and the same for their gradients
_NORM = 5  # forward reads and writes; backward reads the input and its gradient and writes a gradient
_RESIDUAL = 3  # forward reads two tensors and writes one; backward moves nothing
ACTIVATION = 5
LOSS = 6  # logits in fp32: written, read by log-soft-max, their gradient written and read twice


@dataclass(frozen=True)
class Component:
    """FLOPs and bytes of one component of a training step, forward, backward and update."""

    name: str
    work: Computation

    def seconds(self, hardware: Accelerator, precision: str) -> float:
        """The least time on a device."""
        return self.work.seconds(hardware, precision)


@dataclass(frozen=True)
class Roofline:
    """The components of a training step on a device."""

    hardware: Accelerator
    precision: str
    attention: AttentionKind
    components: list[Component]
    model_flops: int  # without those that are computed again in backward

    @property
    def seconds(self) -> float:
        """The least time of a step, if components do not overlap."""
        return sum(one.seconds(self.hardware, self.precision) for one in self.components)

    @property
    def mfu(self) -> float:
        """The largest model FLOPs utilization that the memory's bandwidth allows."""
        return self.model_flops / (self.seconds * self.hardware.peak(self.precision))

    @property
    def waiting(self) -> float:
        """Share of the time in components that are bound by memory. A monitor shows the device as busy then too."""
        waiting = (one for one in self.components if one.work.bound(self.hardware, self.precision) == "memory")
        return sum(one.seconds(self.hardware, self.precision) for one in waiting) / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """The roofline as JSON data."""
        rows = [
            {
                "name": one.name,
                "flops": one.work.flops,
                "bytes": one.work.bytes,
                "seconds": one.seconds(self.hardware, self.precision),
                "bound": one.work.bound(self.hardware, self.precision),
            }
            for one in self.components
        ]
        whole = {"seconds": self.seconds, "mfu": self.mfu, "waiting": self.waiting}
        return {"attention": self.attention, "hardware": self.hardware.name, **whole, "components": rows}


def roofline(
    spec: Transformer, shape: BatchShape, hardware: Accelerator, precision: str, attention: AttentionKind = "tiled"
) -> Roofline:
    """The roofline of a training step of a batch with AdamW.

    Every tensor that a kernel reads or writes counts once for each pass over it, and weights once for each product: what is
    in a cache still, or fused further, is faster. `materialized` attention writes its scores and weights, heads × pairs of
    them, as unfused PyTorch does; `tiled` (FlashAttention, Dao et al. 2022) keeps them on the chip and computes them once
    more in backward. Raises ValueError for another precision.
    """
    if several.text(precision, "the precision") not in WIDTH:
        raise ValueError(f"there is no precision {brief(precision)}; {nearest(precision, WIDTH)}")
    components = summed(_components(spec, shape, WIDTH[precision], attention))
    return Roofline(hardware, precision, attention, components, training_flops(spec, shape))


def summed(parts: Iterable[tuple[str, int, int]]) -> list[Component]:
    """Add up (name, FLOPs, bytes) of components with the same name."""
    totals: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, flops, moved in parts:
        totals[name][0] += flops
        totals[name][1] += moved
    return [Component(name, Computation(flops, moved)) for name, (flops, moved) in totals.items() if flops or moved]


def _components(
    spec: Transformer, shape: BatchShape, width: int, kind: AttentionKind
) -> Iterator[tuple[str, int, int]]:
    """(name, FLOPs, bytes) of each component of each layer."""
    d = spec.d_model
    for name, stack in spec.stacks():
        encodes = name == "encoder" and spec.is_encoder_decoder
        length = shape.source if encodes else shape.length
        tokens, source = shape.rows * length, shape.rows * shape.source
        for layer in stack.layers:
            own = pairs(layer.attention, length)
            yield from _attention(layer.attention, d, (tokens, tokens), shape.rows * own, width, kind)
            if layer.cross is not None:
                crossed = shape.rows * length * shape.source
                yield from _attention(layer.cross, d, (tokens, source), crossed, width, kind)
            cost = layer.feedforward.cost(d)
            wide = getattr(layer.feedforward, "d_ff", d)
            gated = getattr(layer.feedforward, "gated", False)
            inner = wide * getattr(layer.feedforward, "top_k", 1)
            moved = width * (TRAINING * (cost.parameters + tokens * (2 * d + (2 + gated) * inner)))
            moved += width * ACTIVATION * tokens * inner
            yield "feed-forward", TRAINING * layer.feedforward.cost(d, tokens).flops, moved
            sublayers = len(layer.sublayers())
            yield "norms and residuals", 0, width * tokens * d * sublayers * (_NORM + _RESIDUAL)
        yield "norms and residuals", 0, width * tokens * d * _NORM
        yield "embeddings", 0, 2 * width * tokens * d
    if spec.head is not None:
        tokens = shape.rows * shape.length
        cost = spec.head.cost_for(spec, shape.length)
        flops = TRAINING * shape.rows * cost.flops
        matrix = flops // (2 * TRAINING * max(tokens, 1))  # numbers of the weight, its own or the embedding's
        outputs = matrix // d
        yield "head", flops, width * TRAINING * (matrix + tokens * (d + outputs))
        yield "loss", 0, 4 * LOSS * tokens * outputs
    yield "optimizer", 0, ADAMW_BYTES * spec.cost().parameters


def _attention(
    mixer: Any, d: int, tokens: tuple[int, int], seen: int, width: int, kind: AttentionKind
) -> Iterator[tuple[str, int, int]]:
    """Projections and scores of one attention layer. `tokens` are queries and keys, `seen` the pairs of both."""
    queries, keys = tokens
    whole = mixer.cost(d, queries, seen, keys)
    parameters = whole.parameters
    heads, e = mixer.heads(d) or (1, d)
    kv = getattr(mixer, "n_kv_heads", None) or heads
    scores = 4 * seen * heads * e if hasattr(mixer, "pattern") else 0
    projections = max(whole.flops - scores, 0)
    io = queries * (2 * d + 2 * heads * e) + keys * (d + 2 * kv * e)
    yield "attention projections", TRAINING * projections, width * TRAINING * (parameters + io)
    if not scores:
        return
    qkvo = 2 * queries * heads * e + 2 * keys * kv * e
    if kind == "tiled":  # one more product of queries and keys in backward; gradients of q, k, v and out besides
        yield "attention scores", TRAINING * scores + scores // 2, width * 4 * qkvo
    else:
        yield "attention scores", TRAINING * scores, width * (3 * qkvo + SCORES * heads * seen)
