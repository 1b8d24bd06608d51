"""Predict what generating text costs: a prompt and a token, by kind of cache, on one device."""

from __future__ import annotations

from dataclasses import dataclass

from ...cost.accelerators import Accelerator
from ...cost.decoding import Work, prompt, token, token_without_cache
from ...cost.kv_cache import cache_bytes
from ...models.base import ModelSpec
from ...models.transformer import Transformer

CACHES = {"bf16 cache": None, "int8 cache": "int8", "int4 cache": "int4"}


@dataclass(frozen=True)
class Row:
    """One computation: FLOPs, bytes read, bytes of the cache, the least time in seconds, and what binds it."""

    name: str
    flops: int
    bytes: int
    cache: int
    seconds: float
    bound: str


@dataclass(frozen=True)
class GenerationCosts:
    """What generating costs after `context` tokens (and for `source` tokens of an encoder), for one text."""

    hardware: str
    precision: str
    context: int
    source: int
    rows: list[Row]


def of_generation(
    spec: ModelSpec | None, context: int, source: int, hardware: Accelerator, precision: str = "bf16"
) -> GenerationCosts | None:
    """Return the costs of a prompt and of a token; None for a model that does not generate from a KV cache.

    Raises ValueError for a context beyond the model's.
    """
    if not isinstance(spec, Transformer) or spec.decoder is None or spec.head is None or not spec.predicts_tokens:
        return None
    if cache_bytes(spec, context, source=source) is None:
        return None
    if spec.max_positions is not None and context > spec.max_positions:
        raise ValueError(f"a context of {context:,} tokens is longer than the model's {spec.max_positions:,}")

    def row(name: str, work: Work | None, cache: int = 0) -> Row:
        assert work is not None
        return Row(
            name, work.flops, work.bytes, cache, work.seconds(hardware, precision), work.bound(hardware, precision)
        )

    length = source if spec.is_encoder_decoder else context
    rows = [
        row(f"a {'source' if spec.is_encoder_decoder else 'prompt'} of {length:,}", prompt(spec, length, 1, precision))
    ]
    for name, kind in CACHES.items():
        kept = cache_bytes(spec, context, kind, source=source) or 0
        rows.append(row(f"a token, {name}", token(spec, context, source, 1, kind, precision), kept))
    rows.append(row("a token, no cache", token_without_cache(spec, context, source, 1, precision)))
    return GenerationCosts(hardware.name, precision, context, source, rows)
