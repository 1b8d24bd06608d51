"""Predict what generating text costs: a prompt and a token, by kind of cache, on one device."""

from __future__ import annotations

from dataclasses import dataclass

from ...nn.cost.accelerators import Accelerator
from ...nn.cost.decoding import PRECISIONS, Computation, prompt, token, token_without_cache
from ...nn.cost.fit import shallow
from ...nn.cost.kv_cache import cache_bytes
from ...nn.cost.recurrent import decoding as recurrent
from ...nn.kv_cache.kinds import named
from ...nn.models.base import ModelSpec
from ...nn.models.build import build
from ...nn.models.recurrent.model import Recurrent
from ...nn.models.transformer import Transformer

QUANTIZED = ("int8", "int4")
EVICTING = ("sinks", "h2o", "snapkv")


@dataclass(frozen=True)
class ComputationCost:
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
    rows: list[ComputationCost]


def of_generation(
    spec: ModelSpec | None, context: int, source: int, hardware: Accelerator, precision: str = "bf16"
) -> GenerationCosts | None:
    """Return the costs of a prompt or source and of a token; None for a model that does not generate from what it keeps.

    Raises ValueError for a context beyond the model's.
    """
    if isinstance(spec, Recurrent):
        return _of_recurrent(spec, context, source, hardware, precision)
    if not isinstance(spec, Transformer) or spec.decoder is None or spec.head is None or not spec.predicts_tokens:
        return None
    if cache_bytes(spec, context, source=source) is None:
        return None
    if spec.max_positions is not None and context > spec.max_positions:
        raise ValueError(f"a context of {context:,} tokens is longer than the model's {spec.max_positions:,}")

    def row(name: str, work: Computation, cache: int = 0) -> ComputationCost:
        return _row(name, work, hardware, precision, cache)

    length = source if spec.is_encoder_decoder else context
    rows = [
        row(f"a {'source' if spec.is_encoder_decoder else 'prompt'} of {length:,}", prompt(spec, length, 1, precision))
    ]
    for kind in kinds(spec, context):
        kept = cache_bytes(spec, context, kind, PRECISIONS[precision], source) or 0
        work = token(spec, context, source, 1, kind, precision)
        if work is not None:  # a state of another kind has no such cache
            rows.append(row(f"a token, {kind or precision} cache", work, kept))
    rows.append(row("a token, no cache", token_without_cache(spec, context, source, 1, precision)))
    return GenerationCosts(hardware.name, precision, context, source, rows)


def _of_recurrent(spec: Recurrent, context: int, source: int, hardware: Accelerator, precision: str) -> GenerationCosts:
    """Return the costs of a source and of a token, which do not depend on the text before it."""
    rows = [
        _row(f"a source of {source:,}", recurrent.source(spec, source, 1, precision), hardware, precision),
        _row(
            "a token",
            recurrent.token(spec, source, 1, precision),
            hardware,
            precision,
            recurrent.kept_bytes(spec, source, precision),
        ),
    ]
    return GenerationCosts(hardware.name, precision, context, source, rows)


def _row(name: str, work: Computation, hardware: Accelerator, precision: str, cache: int = 0) -> ComputationCost:
    return ComputationCost(
        name, work.flops, work.bytes, cache, work.seconds(hardware, precision), work.bound(hardware, precision)
    )


def kinds(spec: Transformer, context: int) -> list[str | None]:
    """Return the kinds of cache to compare: full (None), quantized, and caches that evict tokens if the model supports
    them and they are smaller. A paged cache takes as much memory as a full one."""
    whole = cache_bytes(spec, context) or 0
    smaller = [kind for kind in EVICTING if (cache_bytes(spec, context, kind) or whole) < whole]
    return [None, *QUANTIZED, *(kind for kind in smaller if _works(shallow(spec), kind))]


def _works(spec: Transformer, kind: str) -> bool:
    """Whether a model supports a kind of cache. The model is built on the meta device."""
    how, model = named(kind), build(spec, device="meta", initialized=False)
    try:
        model.decoder.check_cache(how, spec.max_positions)
        for layer in model.spec.decoder.layers:
            if layer.attention.remembers() is None:
                how.check_pattern(layer.attention.pattern)
    except (AttributeError, ValueError):
        return False
    return True
