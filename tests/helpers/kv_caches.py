"""Small caches of every kind, and numbers to feed them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from qkv.core.layout import Layout
from qkv.nn.kv_cache.cache import Cache
from qkv.nn.kv_cache.kinds import CacheKind, FullCache, PagedCache, QuantizedCache, SinkCache
from qkv.nn.kv_cache.quantization import QuantizedKV

CPU = torch.device("cpu")


B, K, D, E = 2, 2, 6, 4


KINDS = [
    FullCache(),
    QuantizedCache(bits=8, group=4, residual=3),
    QuantizedCache(bits=4, group=4, residual=0),
    SinkCache(sinks=1, window=4),
    PagedCache(page=3),
]


def started(how: CacheKind, rows: int = B, size: int | None = None, layers: int = 2, **more: Any) -> Cache:
    def make(slot_tables: Any, capacity: int | None) -> Any:
        return how.state(slot_tables, size, capacity)

    return Cache(rows, [make] * layers, cross=False, **more)


def numbers(rows: int, tokens: int, seed: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(rows, tokens, K, D, generator=random), torch.randn(rows, tokens, K, E, generator=random)


def feed(cache: Cache, tokens: int, seed: int = 0, layout: Layout | None = None) -> tuple[Tensor, Tensor]:
    """Feed the same numbers to every layer; keys and values that the last gives back, dense."""
    k, v = numbers(cache.batch_size, tokens, seed)
    cache.admit(layout, tokens, CPU)
    given = [state.append(k, v) for state in cache.layers]  # type: ignore[attr-defined]
    keys, values = (x.dequantize() if isinstance(x, QuantizedKV) else x for x in given[-1])
    return keys, values
