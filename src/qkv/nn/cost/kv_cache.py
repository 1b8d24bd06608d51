"""Memory of the KV cache in decoding: 2 · layers · kv_heads · d_head · itemsize bytes per token, or as its kind needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ...core.several import worded
from ..attention.multi_head import Attention
from ..kv_cache.full import CrossState
from ..kv_cache.kinds import CacheKind, named
from ..models.transformer import Transformer


@worded
def cache_parts(
    spec: Transformer,
    tokens: int,
    cache: CacheKind | Mapping[str, Any] | str | None = None,
    dtype: torch.dtype = torch.bfloat16,
    source: int | None = None,
) -> dict[str, int] | None:
    """Return the bytes of the cache of one row of `tokens` tokens, by part.

    A decoder with cross-attention also stores the keys and values of the encoder's `source` tokens (default `tokens`), never
    quantized. Returns None if a layer has a state of unknown size, or one that this cache is not for. Raises ValueError for
    a model that does not decode.
    """
    if spec.decoder is None:
        raise ValueError("an encoder alone does not decode, so it has no cache; give a model with a decoder")
    cache_kind, total = named(cache), dict[str, int]()
    memory = tokens if source is None else source

    def add(sizes: dict[str, int]) -> None:
        for name, size in sizes.items():
            total[name] = total.get(name, 0) + size

    for block in spec.decoder.layers:
        for mixer, crosses in ((block.attention, False), (block.cross, True)):
            if mixer is None:
                continue
            if not isinstance(mixer, Attention) or not (crosses or mixer.keeps_keys):
                state = mixer.state_parts(spec.d_model, tokens, dtype.itemsize)
                if state is None or (state and cache_kind.kind != "full"):
                    return None
                add(state)
                continue
            _, heads, d_key, d_value = mixer.widths(spec.d_model)
            width = mixer.score.width(d_key)
            if crosses:
                sizes = {CrossState.PART: memory * heads * (width + d_value) * dtype.itemsize}
            else:
                window = mixer.remembers()
                kind = cache_kind if window is None else cache_kind.windowed
                kept = tokens if window is None else kind.kept(tokens, window)
                sizes = kind.bytes(kept, heads, width, d_value, dtype.itemsize)
            add(sizes)
    return total


@worded
def cache_bytes(
    spec: Transformer,
    tokens: int,
    cache: CacheKind | Mapping[str, Any] | str | None = None,
    dtype: torch.dtype = torch.bfloat16,
    source: int | None = None,
) -> int | None:
    """Return the sum of `cache_parts`."""
    parts = cache_parts(spec, tokens, cache, dtype, source)
    return None if parts is None else sum(parts.values())
