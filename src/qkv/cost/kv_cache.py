"""The memory of a cache while a model decodes: 2 · layers · kv_heads · d_head · bytes a token, or what its kind holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..attention.multi_head import Attention, NoMixer
from ..kv_cache.full import CrossState
from ..kv_cache.kinds import CacheKind, named
from ..models.transformer import Transformer


def cache_parts(
    spec: Transformer,
    tokens: int,
    cache: CacheKind | Mapping[str, Any] | str | None = None,
    dtype: torch.dtype = torch.bfloat16,
    source: int | None = None,
) -> dict[str, int] | None:
    """Bytes that decoding holds of one row of `tokens` tokens, by what they are.

    A decoder with cross-attention also holds the keys and values of the encoder's `source` tokens, never quantized;
    by default `source` is `tokens`. None where a layer remembers in a way of its own. Raises ValueError for a model that
    does not decode.
    """
    if spec.decoder is None:
        raise ValueError("an encoder alone does not decode, so it has no cache; ask of a model with a decoder")
    how, total = named(cache), dict[str, int]()
    memory = tokens if source is None else source
    for block in spec.decoder.layers:
        for mixer, crosses in ((block.attention, False), (block.cross, True)):
            if mixer is None or isinstance(mixer, NoMixer):
                continue
            if not isinstance(mixer, Attention) or not (crosses or mixer.keeps_keys):
                return None
            _, heads, d_key, d_value = mixer.widths(spec.d_model)
            width = mixer.score.width(d_key)
            if crosses:
                sizes = {CrossState.PART: memory * heads * (width + d_value) * dtype.itemsize}
            else:
                window = mixer.remembers()
                kind = how if window is None else how.windowed
                kept = tokens if window is None else kind.kept(tokens, window)
                sizes = kind.bytes(kept, heads, width, d_value, dtype.itemsize)
            for name, size in sizes.items():
                total[name] = total.get(name, 0) + size
    return total


def cache_bytes(
    spec: Transformer,
    tokens: int,
    cache: CacheKind | Mapping[str, Any] | str | None = None,
    dtype: torch.dtype = torch.bfloat16,
    source: int | None = None,
) -> int | None:
    """All of `cache_parts` together."""
    parts = cache_parts(spec, tokens, cache, dtype, source)
    return None if parts is None else sum(parts.values())
