"""Cost of generating text: FLOPs, bytes read and time of a token and of a prompt, with and without a cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..kv_cache.kinds import CacheKind, named
from ..layers.moe import MixtureOfExperts
from ..models.heads.language_model import LanguageModel
from ..models.stack import pairs
from ..models.transformer import Transformer
from .accelerators import Accelerator
from .kv_cache import cache_bytes

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Computation:
    """A computation: FLOPs, and bytes that it has to read from memory at least."""

    flops: int
    bytes: int

    @property
    def intensity(self) -> float:
        """FLOPs per byte."""
        return self.flops / max(self.bytes, 1)

    def seconds(self, hardware: Accelerator, precision: str) -> float:
        """The least time on a device: arithmetic or memory, whichever takes longer (the roofline)."""
        return max(self.flops / hardware.peak(precision), self.bytes / hardware.bandwidth)

    def bound(self, hardware: Accelerator, precision: str) -> str:
        """What takes longer: "compute" or "memory"."""
        return "compute" if self.intensity > hardware.ridge(precision) else "memory"


def token(
    spec: Transformer,
    context: int,
    source: int = 0,
    rows: int = 1,
    cache: CacheKind | Mapping[str, Any] | str | None = None,
    precision: str = "bf16",
) -> Computation | None:
    """Return the work of one decoding step: the next token of each row, after `context` tokens.

    The step reads its weights once for all rows, and the cache of each row. With a cache that evicts tokens, it attends only
    to the tokens that are kept. Returns None for layers whose state is of another kind. Raises ValueError for a
    model that does not decode.
    """
    kept = cache_bytes(spec, context, cache, PRECISIONS[precision], source)
    if kept is None:
        return None
    decoder = _decoder(spec)
    flops = sum(_layer_flops(spec, layer, _kept(layer, named(cache), context), source) for layer in decoder.layers)
    flops += decoder.norm.cost(spec.d_model, 1).flops + _head_flops(spec)
    return Computation(rows * flops, read_by_step(spec, precision, rows) + rows * kept)


def token_without_cache(
    spec: Transformer, context: int, source: int = 0, rows: int = 1, precision: str = "bf16"
) -> Computation:
    """Return the work of the next token without a cache: a pass over the whole context."""
    flops = spec.cost(context, source).flops - (context - 1) * _head_flops(spec)
    weights = spec.cost().active + _further_experts(spec, rows * context)
    return Computation(rows * flops, _width(precision) * weights)


def prompt(spec: Transformer, length: int, rows: int = 1, precision: str = "bf16") -> Computation:
    """Return the work of reading a prompt of `length` tokens: the source of an encoder–decoder, which also gets the keys and
    values of cross-attention, else the text before the first new token."""
    if spec.is_encoder_decoder:
        flops = spec.cost(0, length).flops
        return Computation(
            rows * flops, _width(precision) * (spec.cost().active - read_by_step(spec, precision) // _width(precision))
        )
    flops = spec.cost(length).flops - (length - 1) * _head_flops(spec)
    return Computation(rows * flops, read_by_step(spec, precision, rows * length))


def read_by_step(spec: Transformer, precision: str, tokens: int = 1) -> int:
    """Bytes of the weights that a decoding step of `tokens` tokens reads: of the experts those chosen, of an embedding table
    nothing."""
    decoder, d = _decoder(spec), spec.d_model
    count = 0
    for layer in decoder.layers:
        own = layer.cost(d)
        count += own.parameters - own.idle
        if layer.cross is not None:
            count -= layer.cross.cost(d, 0, 0, 1).flops // 2  # keys and values of the source were projected before
    count += decoder.norm.cost(d).parameters
    if spec.head is not None:
        count += spec.head.cost_for(spec, 1).parameters
    if isinstance(spec.head, LanguageModel) and spec.head.tied:
        count += spec.vocab_size * spec.head.width(d)  # the embedding's table
    return _width(precision) * (count + _further_experts(spec, tokens))


def _further_experts(spec: Transformer, tokens: int) -> int:
    """Parameters of the experts that several tokens choose in addition to one token's, if the router chooses evenly: of
    n experts, n (1 − (1 − k/n)^tokens) are chosen."""
    count = 0.0
    for layer in _decoder(spec).layers:
        experts = layer.feedforward
        if isinstance(experts, MixtureOfExperts) and experts.n_experts > experts.top_k:
            n, k = experts.n_experts, experts.top_k
            chosen = n * (1 - (1 - k / n) ** tokens)
            count += layer.feedforward.cost(spec.d_model).idle * (chosen - k) / (n - k)
    return round(count)


def _decoder(spec: Transformer) -> Any:
    if spec.decoder is None:
        raise ValueError("an encoder alone does not decode; give a model with a decoder")
    return spec.decoder


def _kept(layer: Any, cache: CacheKind, context: int) -> int:
    """Return how many of `context` tokens a cache keeps for a layer. A sliding window is accounted for separately."""
    windowed = hasattr(layer.attention, "remembers") and layer.attention.remembers() is not None
    return min(context, (cache.windowed if windowed else cache).most or context)


def _layer_flops(spec: Transformer, layer: Any, context: int, source: int) -> int:
    """FLOPs of one layer for the token after `context - 1` others."""
    d = spec.d_model
    seen = pairs(layer.attention, context) - pairs(layer.attention, context - 1)
    flops = layer.cost(d, 1, seen, source, source).flops
    if layer.cross is not None:
        flops -= layer.cross.cost(d, 0, 0, source).flops
    return int(flops)


def _head_flops(spec: Transformer) -> int:
    return 0 if spec.head is None else int(spec.head.cost_for(spec, 1).flops)


def _width(precision: str) -> int:
    return PRECISIONS[precision].itemsize
