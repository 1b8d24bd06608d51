"""Stand-ins with a model's decoding interface: a table whose distribution is known exactly, and a small attention."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from qkv.core.layout import Layout


class TableCache:
    def __init__(self, rows: int) -> None:
        self.ids = torch.empty(rows, 0, dtype=torch.long)
        self.reordered: list[list[int]] = []

    def reorder(self, rows: Tensor, cross: bool = True) -> None:
        self.ids = self.ids[rows]
        self.reordered.append(rows.tolist())


class Table(nn.Module):
    """The next token's logits are an entry of a table indexed by the last `order` tokens."""

    is_encoder_decoder = False
    device = torch.device("cpu")

    def __init__(self, logits: Tensor, max_positions: int | None = None) -> None:
        super().__init__()
        self.logits = logits
        self.order = logits.ndim - 1
        self.vocab_size = logits.shape[-1]
        self.max_positions = max_positions
        self.rows_fed: list[int] = []

    def start(self, batch_size: int | None = None, *, source=None, source_layout=None, capacity=None) -> TableCache:
        return TableCache(batch_size or 1)

    def step(self, ids: Tensor, cache: TableCache, layout: Layout | None = None) -> Tensor:
        self.rows_fed.append(len(ids))
        cache.ids = torch.cat([cache.ids, ids], 1)
        return self.logits[tuple(cache.ids[:, -self.order :].unbind(1))]


class TinyCache:
    """Keys and values are made from `states` again at each step: slow, and plainly right."""

    def __init__(self, rows: int, memory: Tensor | None = None, memory_valid: Tensor | None = None) -> None:
        self.ids = torch.empty(rows, 0, dtype=torch.long)
        self.positions = torch.empty(rows, 0, dtype=torch.long)
        self.memory, self.memory_valid = memory, memory_valid

    def reorder(self, rows: Tensor, cross: bool = True) -> None:
        self.ids, self.positions = self.ids[rows], self.positions[rows]
        if self.memory is not None and self.memory_valid is not None:
            self.memory, self.memory_valid = self.memory[rows], self.memory_valid[rows]


class Tiny(nn.Module):
    """One layer of causal attention with learned positions (and cross-attention), in float64; dropout in training."""

    device = torch.device("cpu")

    def __init__(self, vocab: int = 23, context: int | None = 40, encoder_decoder: bool = False, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.vocab_size, self.max_positions, self.is_encoder_decoder = vocab, context, encoder_decoder
        self.tokens = nn.Parameter(torch.randn(vocab, 8, dtype=torch.float64))
        self.places = nn.Parameter(torch.randn(64 if context is None else context, 8, dtype=torch.float64))
        self.mix = nn.Parameter(0.3 * torch.randn(3, 8, 8, dtype=torch.float64))
        self.dropout = nn.Dropout(0.5)

    def _attend(self, q: Tensor, kv: Tensor, allowed: Tensor) -> Tensor:
        scores = (q @ self.mix[0] @ kv.mT).masked_fill(~allowed, -torch.inf)
        weights = torch.where(allowed.any(-1, keepdim=True), scores.softmax(-1), 0.0)
        return weights @ kv @ self.mix[1]

    def _logits(self, cache: TinyCache) -> Tensor:
        position = cache.positions
        x = self.tokens[cache.ids] + self.places[position.clamp(min=0)]
        allowed = (position[:, None, :] <= position[:, :, None]) & (position >= 0)[:, None, :]
        x = x + self._attend(x, x, allowed)
        if cache.memory is not None and cache.memory_valid is not None:
            x = x + self._attend(x, cache.memory, cache.memory_valid[:, None, :].expand(-1, x.shape[1], -1))
        return self.dropout(x) @ self.mix[2] @ self.tokens.T

    def start(self, batch_size: int | None = None, *, source=None, source_layout=None, capacity=None) -> TinyCache:
        assert self.is_encoder_decoder == (source is not None)
        if source is None:
            return TinyCache(batch_size or 1)
        position = source_layout.positions[..., 0].expand(source.shape)
        memory = self.tokens[source] + self.places[position.clamp(min=0)]
        return TinyCache(len(source), memory, position >= 0)

    def step(self, ids: Tensor, cache: TinyCache, layout: Layout | None = None) -> Tensor:
        if layout is None:
            position = cache.positions.amax(1, keepdim=True) + 1
        else:
            position = layout.positions[..., 0].expand(ids.shape)
        cache.ids = torch.cat([cache.ids, ids], 1)
        cache.positions = torch.cat([cache.positions, position], 1)
        return self._logits(cache)[:, -1]

    def forward(self, ids: Tensor, target=None, *, layout: Layout, target_layout: Layout | None = None) -> Tensor:
        if target is None:
            cache, fed, where = self.start(len(ids)), ids, layout
        else:
            cache, fed, where = self.start(source=ids, source_layout=layout), target, target_layout
        cache.ids, cache.positions = fed, where.positions[..., 0].expand(fed.shape)
        return self._logits(cache)


def random_table(vocab: int, order: int = 1, seed: int = 0, spread: float = 2.0) -> Tensor:
    """A table of logits; NumPy's legacy generator gives the same numbers in every version."""
    numbers = np.random.RandomState(seed).standard_normal((vocab,) * (order + 1))
    return torch.from_numpy(spread * numbers).float()


@pytest.fixture
def table() -> Callable[..., Table]:
    return lambda *args, max_positions=None, **kwargs: Table(random_table(*args, **kwargs), max_positions)


@pytest.fixture
def fixed() -> Callable[..., Table]:
    """A table model from explicit probabilities: rows of p(next | last)."""
    return lambda rows, **kwargs: Table(torch.tensor(rows, dtype=torch.float32).log(), **kwargs)


@pytest.fixture
def tiny() -> type[Tiny]:
    return Tiny
