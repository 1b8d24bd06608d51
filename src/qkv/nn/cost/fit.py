"""What fits into a memory: the largest batch, the longest text, the deepest and the widest model, in training and decoding.

All sizes come from `cost.memory` and `cost.kv_cache`; nothing here multiplies by its own factors.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import torch

from ...core.spec import brief
from ..attention.multi_head import Attention
from ..kv_cache.kinds import CacheKind
from ..layers.feedforward import FeedForward
from ..layers.grouped_linear import GroupedLinear
from ..layers.linear import Linear
from ..models.base import ModelSpec
from ..models.build import build
from ..models.stack import Stack
from ..models.transformer import Transformer
from .flops import BatchShape
from .kv_cache import cache_bytes
from .memory import Count, MemorySettings, TrainingMemory, count
from .memory_tracking import Live, without_contents

Model = TypeVar("Model", bound=ModelSpec)

Between = Callable[[int, int], Callable[[int], float] | None]

MOST_ROWS, MOST_TOKENS, MOST_LAYERS, MOST_HEADS = 1 << 20, 1 << 17, 4096, 4096
SLACK = 4096  # bytes by which sizes on a line may be rounded
GROUP = 128  # weights that share a scale where weights are quantized

_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SMALLEST = 10**6  # bytes; a number without a unit that is smaller was meant in GB
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?b|)", re.IGNORECASE)


def read_size(text: str) -> int:
    """Bytes of a size such as 24GB (10⁹), 22GiB (2³⁰) or 500MB. Raises ValueError for anything else."""
    match = _SIZE.fullmatch(text.strip())
    size = round(float(match[1]) * _UNITS[match[2].lower()]) if match else 0
    if size < _SMALLEST:
        raise ValueError(f"{brief(text)} is not a size of memory; write it as 24GB, 22.5GiB or 500MB")
    return size


def shape_of(name: str, spec: ModelSpec, rows: int, length: int) -> BatchShape:
    """Rows of a length, on each side of a pair. Raises ValueError for rows longer than the model's context."""
    if spec.max_positions is not None and length > spec.max_positions:
        raise ValueError(
            f"rows of {length:,} tokens are longer than {name}'s context of {spec.max_positions:,}; give --length "
            f"{spec.max_positions} or less"
        )
    return BatchShape(rows, length, length if spec.is_encoder_decoder else 0)


def largest(
    size: Callable[[int], int],
    limit: int,
    most: int,
    first: int = 8,
    *,
    convex: bool = False,
    base: int = 0,
    between: Between | None = None,
) -> int:
    """The largest n from 1 to `most` with size(n) ≤ limit, 0 if there is none, for a size that grows with n.

    `first` is tried first, then what interpolation of the sizes known so far gives; n = 0 has about `base`. Where each step
    adds no less than the one before (`convex`), the size of n + 1 is not computed if the slope up to n says that it is too
    large. `between(low, high)` gives the sizes between two known ones, where these say what they are, up to SLACK.
    """
    known: dict[int, int] = {}
    low, high, tried = 0, most + 1, max(1, min(first, most))
    while high - low > 1:
        known[tried] = size(tried)
        low, high = (tried, high) if known[tried] <= limit else (low, tried)
        if low in known and high in known and between is not None and (line := between(low, high)) is not None:
            n = low + bisect_right(range(low + 1, high), float(limit), key=line)
            if line(n) < limit - SLACK and line(n + 1) > limit + SLACK:
                return n
        below = max((n for n in known if n < low), default=None)
        rise = 0.0 if below is None else (known[low] - known[below]) / (low - below)
        if convex and known.get(low, 0) + rise > limit:
            return low
        tried = _next({0: base, **known}, low, high, rise, limit)
    return low


def _next(known: Mapping[int, int], low: int, high: int, rise: float, limit: int) -> int:
    """The n to try between `low`, which fits, and `high`, which does not, by the slopes known so far."""
    if high in known:
        rise = (known[high] - known[low]) / (high - low)
    elif not rise:
        rise = (known[low] - known[0]) / low
    ahead = (limit - known[low]) / rise if rise > 0 else 64.0 * low
    return min(max(low + int(min(ahead, 64.0 * low) if low else ahead), low + 1), high - 1)


# -- training ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def _counted(spec: ModelSpec, shape: BatchShape, plan: MemorySettings) -> Count:
    counted = count(spec, shape, plan)
    if counted is None:
        raise ValueError(
            "the memory of this model can't be predicted: its control flow depends on the values of tensors; "
            "train it for a few steps and look at the peak"
        )
    return counted


def training_memory(spec: ModelSpec, shape: BatchShape, plan: MemorySettings) -> TrainingMemory:
    """Memory of a training step. Raises ValueError for a model whose memory can't be predicted."""
    return _counted(spec, shape, plan).memory


def memory_by_layers(spec: ModelSpec, shape: BatchShape, plan: MemorySettings) -> TrainingMemory:
    """Memory of a training step, from steps of two models of few layers: each further layer adds as much as between them.
    A model whose layers don't repeat, or are few, is counted as it is."""
    models = _few_layers(spec)
    counted = (astuple(training_memory(model, shape, plan)) for model in models)
    return TrainingMemory(*(round(_all_layers(spec, models, sizes)) for sizes in zip(*counted, strict=True)))


def _all_layers(spec: ModelSpec, models: Sequence[ModelSpec], sizes: Sequence[float]) -> float:
    """The size of a model, by the sizes of its `_few_layers`."""
    if len(models) == 1:
        return sizes[0]
    period = models[0].n_layers
    return sizes[0] + (sizes[1] - sizes[0]) * ((spec.n_layers - period) / period)


def _few_layers(spec: ModelSpec) -> tuple[ModelSpec, ...]:
    """The models that `memory_by_layers` counts."""
    period = _period(spec)
    if period is None or spec.n_layers <= 2 * period:
        return (spec,)
    return with_layers(spec, period), with_layers(spec, 2 * period)


def _period(spec: ModelSpec) -> int | None:
    """After how many layers the blocks of all stacks repeat; None if they don't, or if stacks differ in depth."""
    stacks = [stack for _, stack in spec.stacks()]
    if not stacks or any(stack.order is not None or len(stack.blocks) != spec.n_layers for stack in stacks):
        return None
    for n in range(1, spec.n_layers // 2 + 1):
        if all(stack.blocks[i] == stack.blocks[i % n] for stack in stacks for i in range(spec.n_layers)):
            return n
    return None


def largest_batch(
    spec: ModelSpec, shape: BatchShape, plan: MemorySettings, limit: int, saved: int = 0, *, by_layers: bool = False
) -> int:
    """The most rows of the shape's length that training fits in `limit` bytes; `saved` bytes are elsewhere. With `by_layers`
    few layers are counted (`memory_by_layers`)."""
    models = _few_layers(spec) if by_layers else (spec,)
    memory = memory_by_layers if by_layers else training_memory

    def counted(rows: int) -> TrainingMemory:
        return memory(spec, replace(shape, rows=rows), plan)

    def between(low: int, high: int) -> Callable[[int], float] | None:
        rows = [[_counted(model, replace(shape, rows=n), plan) for n in (low, high)] for model in models]
        if plan.batch is not None or any(one.program != other.program for one, other in rows):
            return None

        def size(n: int) -> float:
            peaks = [one.peak_towards(other, (n - low) / (high - low)) for one, other in rows]
            return _all_layers(spec, models, peaks) - saved

        return size

    first = counted(shape.rows)
    base = (
        first.peak - first.activations - saved
    )  # activations grow with rows; how far other memory does is not known yet
    size = lambda n: counted(n).peak - saved  # noqa: E731
    return largest(size, limit, MOST_ROWS, shape.rows, base=base, between=between)


def longest_rows(spec: ModelSpec, shape: BatchShape, plan: MemorySettings, limit: int) -> int:
    """The most tokens of a row with which training fits, at the shape's number of rows; at most the model's context."""

    def size(n: int) -> int:
        return _peak(spec, replace(shape, length=n, source=n if shape.source else 0), plan)

    return largest(size, limit, spec.max_positions or MOST_TOKENS, shape.length, convex=True)


def deepest(spec: ModelSpec, shape: BatchShape, plan: MemorySettings, limit: int) -> ModelSpec | None:
    """The model with the most layers per stack with which training fits; None if not even one layer fits.

    Beyond twice the layers, each adds as much memory as on the way there.
    """
    known = spec.n_layers * 2

    def size(n: int) -> int:
        return _peak(with_layers(spec, n), shape, plan)

    def extrapolated(n: int) -> int:
        if n <= known:
            return size(n)
        return size(known) + round((size(known) - size(known // 2)) / (known // 2) * (n - known))

    layers = largest(extrapolated, limit, MOST_LAYERS, spec.n_layers, convex=True)
    return with_layers(spec, layers) if layers else None


def widest(spec: ModelSpec, shape: BatchShape, plan: MemorySettings, limit: int) -> ModelSpec | None:
    """The model with the most heads of the same width, and all else in proportion, with which training fits."""
    count = largest(lambda n: _peak(with_width(spec, n), shape, plan), limit, MOST_HEADS, convex=True)
    return with_width(spec, count) if count else None


def _peak(spec: ModelSpec, shape: BatchShape, plan: MemorySettings) -> int:
    return training_memory(spec, shape, plan).peak


def sharded_savings(memory: TrainingMemory, stage: int, ranks: int) -> int:
    """Bytes that ZeRO (Rajbhandari et al. 2020) leaves to the other ranks: of N equal shares of the optimizer's state
    (stage 1), of gradients too (stage 2) and of weights too (stage 3), a rank keeps one."""
    parts = (memory.optimizer, memory.gradients, memory.weights)[:stage]
    return sum(part - -(-part // ranks) for part in parts)


# -- decoding ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decoding:
    """How a model decodes: the dtype, `bits` of the weights if they are quantized, and the kind of cache."""

    dtype: torch.dtype = torch.bfloat16
    bits: int | None = None
    cache: CacheKind | Mapping[str, Any] | str | None = None


def weights_bytes(spec: ModelSpec, decoding: Decoding) -> int:
    """Bytes of the weights. Quantized are the matrices of linear layers, with a scale in `dtype` for each group of 128
    weights of a row; tables, norms and biases stay as they are."""
    itemsize = decoding.dtype.itemsize
    if decoding.bits is None:
        return spec.n_parameters * itemsize
    matrices, scales = _matrices(spec)
    return (spec.n_parameters - matrices) * itemsize + matrices * decoding.bits // 8 + scales * itemsize


@lru_cache(maxsize=32)
def _matrices(spec: ModelSpec) -> tuple[int, int]:
    """Number of weights in linear layers, and of their groups."""
    modules = build(spec, device="meta", initialized=False).modules()
    weights = {m.weight for m in modules if isinstance(m, Linear | GroupedLinear)}
    groups = (w.numel() // w.shape[-1] * -(-w.shape[-1] // GROUP) for w in weights)
    return sum(w.numel() for w in weights), sum(groups)


def decoding_memory(spec: Transformer, shape: BatchShape, decoding: Decoding) -> int:
    """Return the peak bytes of decoding: weights, the cache of all rows, and the larger of the fp32 logits of a step and the
    temporary memory of reading all prompts at once (`prompt_bytes`). Raises ValueError for a model that does not decode, and
    for a state of unknown size or one that does not work with the cache."""
    row = cache_bytes(spec, shape.length, decoding.cache, decoding.dtype, shape.source)
    if row is None:
        raise ValueError("a layer of this model has its own decoding state, whose size with this cache is not known")
    passing = max(4 * spec.vocab_size, prompt_bytes(spec, shape, decoding))
    return weights_bytes(spec, decoding) + shape.rows * (row + passing)


def prompt_bytes(spec: Transformer, shape: BatchShape, decoding: Decoding) -> int:
    """Bytes that reading a prompt of the shape's length at once needs for a moment, for one row, beyond weights and cache:
    the activations of a layer, as its modules compute them (kernels for whole sequences need less). In an encoder–decoder
    the source is read, of the shape's source length."""
    length = 1 if spec.is_encoder_decoder else shape.length
    return _prompt_bytes(shallow(spec), length, shape.source, decoding.dtype, decoding.cache)


def shallow(spec: Transformer) -> Transformer:
    """Return the model cut to two layers, because layers reuse the same temporary memory one after another. A model
    with more than two different blocks is returned unchanged."""
    differ = any(stack.order is not None or len(set(stack.blocks)) > 2 for _, stack in spec.stacks())
    if differ or spec.is_encoder_decoder:  # which keeps keys and values of all layers while the source is read
        return spec
    return with_layers(spec, 2) if spec.n_layers > 2 else spec


@lru_cache(maxsize=512)
def _prompt_bytes(spec: Transformer, length: int, source: int, dtype: torch.dtype, cache: Any) -> int:
    options = {} if cache is None else {"cache": cache}
    prompt = torch.zeros(1, length, dtype=torch.long)
    with without_contents(), torch.no_grad():
        model, live = build(spec, dtype=dtype, initialized=False).eval(), Live()
        live.hold_model(model)
        with live:
            if spec.is_encoder_decoder:
                sources = torch.zeros(1, source, dtype=torch.long)
                state = model.start(source=sources, capacity=length, **options)
            else:
                state = model.start(1, capacity=length, **options)
            logits = model.step(prompt, state)
        kept, _ = live.now, logits
    return live.peak - kept


def largest_decoding_batch(spec: Transformer, shape: BatchShape, decoding: Decoding, limit: int) -> int:
    """The most rows that can be decoded at once."""
    return largest(lambda n: decoding_memory(spec, replace(shape, rows=n), decoding), limit, MOST_ROWS)


def longest_text(spec: Transformer, shape: BatchShape, decoding: Decoding, limit: int) -> int:
    """The most tokens of each row that can be decoded, at most the model's context."""

    def size(n: int) -> int:
        return decoding_memory(spec, replace(shape, length=n), decoding)

    return largest(size, limit, spec.max_positions or 1 << 24)


# -- models of other sizes -----------------------------------------------------------------------------------------------


def with_layers(spec: Model, layers: int) -> Model:
    """The model with this number of layers in each stack, its blocks in turn. Raises ValueError for a model without stacks
    and for layers that share their parameters."""
    if not spec.stacks():
        raise ValueError(f"a {spec.kind} model has no stacks of blocks to deepen; set its sizes yourself")
    return spec.replace({name: _deepened(stack, layers) for name, stack in spec.stacks()})


def _deepened(stack: Stack, layers: int) -> Stack:
    if stack.order is not None:
        return stack.replace(order=tuple(stack.order[i % len(stack.order)] for i in range(layers)))
    return stack.replace(blocks=tuple(stack.blocks[i % len(stack.blocks)] for i in range(layers)))


def with_width(spec: ModelSpec, units: int) -> ModelSpec:
    """The model with `units` times the heads that share one key-value head, all of the same width as before, and d_model and
    the feed-forward layers in proportion. Raises ValueError for a model without heads to add."""
    blocks = [block for _, stack in spec.stacks() for block in stack.blocks]
    mixers = [m for block in blocks for m in (block.attention, block.cross) if m is not None]
    counts = {(m.n_heads, m.n_kv_heads or m.n_heads) for m in mixers if isinstance(m, Attention)}
    plain = all(type(m) is Attention for m in mixers) and all(isinstance(b.feedforward, FeedForward) for b in blocks)
    if len(counts) != 1 or not plain:
        raise ValueError("only a model of attention and feed-forward layers with equal heads can be widened")
    ((heads, kv_heads),) = counts
    group = heads // kv_heads
    d_model = spec.d_model * units * group // heads
    changes: dict[str, Any] = {"d_model": d_model}
    for name, stack in spec.stacks():
        for i, block in enumerate(stack.blocks):
            path = f"{name}.blocks.{i}"
            changes[f"{path}.feedforward.d_ff"] = max(block.feedforward.d_ff * d_model // spec.d_model, 1)
            for part in ("attention", "cross"):
                if getattr(block, part) is not None:
                    changes[f"{path}.{part}.n_heads"] = units * group
                    if getattr(block, part).n_kv_heads is not None:
                        changes[f"{path}.{part}.n_kv_heads"] = units
    return spec.replace(changes)
