"""The memory of a cache while a model decodes: 2 · layers · kv_heads · d_head · bytes a token, or what its kind holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..core.caches import CacheKind, named
from ..model.attention import Attention, NoMixer
from ..model.transformer import Transformer


def cache_parts(
    spec: Transformer,
    tokens: int,
    cache: CacheKind | Mapping[str, Any] | str | None = None,
    dtype: torch.dtype = torch.bfloat16,
) -> dict[str, int] | None:
    """Bytes that decoding holds of one row of so many tokens, by what they are, cross-attention's keys and values apart.

    None where a layer remembers in a way of its own. Raises ValueError for a model that does not decode.
    """
    if spec.decoder is None:
        raise ValueError("an encoder alone does not decode, so it has no cache; ask of a model with a decoder")
    how, total = named(cache), dict[str, int]()
    for mixer in (block.attention for block in spec.decoder.blocks):
        if isinstance(mixer, NoMixer):
            continue
        if not isinstance(mixer, Attention) or not mixer.keeps_keys:
            return None
        _, heads, d_key, d_value = mixer.widths(spec.d_model)
        kept, width = _kept(tokens, mixer, how), mixer.score.width(d_key)
        for name, size in how.bytes(kept, heads, width, d_value, dtype.itemsize).items():
            total[name] = total.get(name, 0) + size
    return total


def cache_bytes(
    spec: Transformer,
    tokens: int,
    cache: CacheKind | Mapping[str, Any] | str | None = None,
    dtype: torch.dtype = torch.bfloat16,
) -> int | None:
    """All of `cache_parts` together."""
    parts = cache_parts(spec, tokens, cache, dtype)
    return None if parts is None else sum(parts.values())


def _kept(tokens: int, mixer: Attention, how: CacheKind) -> int:
    """The tokens of a row that a layer's cache keeps."""
    window = mixer.remembers()
    return tokens if window is None else how.kept(tokens, window)
