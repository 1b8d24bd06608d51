"""Checks of patterns pass for qkv's own and find wrong ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import qkv
from qkv.core.layout import View
from qkv.nn.patterns.intervals import BlockMask, Interval
from qkv.testing import patterns


class TooEmpty(qkv.Pattern, kind="mutant-too-empty"):
    """Its `allowed` is wider than its `block`."""

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return (k.position <= q.position) & (q.position - k.position < 6)

    def block(self, q: Interval, k: Interval) -> BlockMask:
        return (q.low - k.high < 3) & (k.low <= q.high), q.low != q.low


class TooFull(qkv.Pattern, kind="mutant-too-full"):
    """Its `block` is wider than its `allowed`."""

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return (k.position <= q.position) & (q.position % 2 == 0)

    def block(self, q: Interval, k: Interval) -> BlockMask:
        return k.low <= q.high, k.high <= q.low


class ByIndex(qkv.Pattern, kind="mutant-by-index"):
    """Its rule is about tensor indices."""

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        t, s = q.position.shape[1], k.position.shape[2]
        return (torch.arange(s) <= torch.arange(t)[:, None])[None]


@pytest.mark.parametrize(
    "pattern",
    [
        qkv.full(),
        qkv.causal() & (qkv.window(3) | qkv.sinks(2)),
        qkv.causal() & qkv.by_head(qkv.strided(3, "local"), qkv.fixed(3, 2, "far")),
        ~qkv.window(2) & qkv.causal(),
        pytest.param(qkv.causal() & qkv.random_blocks(2, 2, heads=2), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_right_patterns_pass(pattern: qkv.Pattern) -> None:
    patterns.check_blocks(pattern)
    patterns.check_indices(pattern)


def test_a_block_that_is_wrongly_empty_is_found() -> None:
    with pytest.raises(AssertionError, match=r"`block` calls queries .* empty, but `allowed` allows a pair"):
        patterns.check_blocks(TooEmpty())


def test_a_block_that_is_wrongly_full_is_found() -> None:
    with pytest.raises(AssertionError, match=r"`block` calls queries .* full, but `allowed` forbids a pair"):
        patterns.check_blocks(TooFull())


def test_a_rule_about_indices_is_found() -> None:
    with pytest.raises(AssertionError, match=r"`allowed` depends on tensor indices"):
        patterns.check_indices(ByIndex())
