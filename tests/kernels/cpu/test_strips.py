"""Plans: every allowed pair computed once, masks wherever a pair is forbidden, neighbors together."""

from __future__ import annotations

import pytest
import torch
from blocks_drawn import PATTERNS, layouts
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from qkv.core.layout import Layout
from qkv.kernels.cpu.spans import Even, Gathered
from qkv.kernels.cpu.strips import Band, Plan, Scattered, make_plan, n_scores, plain_plan
from qkv.patterns.basic import Pattern, causal, chunks, global_tokens, random_blocks, window


def spelled_out(plan: Plan, t: int, s: int) -> tuple[Tensor, Tensor]:
    """How often each pair is computed, and how often without a mask."""
    counts = torch.zeros(2, t, s, dtype=torch.long)
    for x in plan:
        for i in range(x.n if isinstance(x, Band) else len(x.strips)):
            if isinstance(x, Scattered):
                for block in x.blocks[i]:
                    tile = counts[:, x.strips[i] * x.rows :, block * x.unit :][:, : x.rows, : x.unit]
                    tile += torch.tensor([1, not x.masked])[:, None, None]
                continue
            rows = counts[:, x.first + i * x.rows :][:, : x.rows]
            for run in x.runs:
                part = rows[:, :, run.start + i * run.step :][:, :, : run.length]
                part += 1
                for a, b in run.masked:
                    part[1, :, a:b] -= 1
    return counts[0], counts[1]


@given(st.sampled_from(PATTERNS), layouts(), layouts(), st.sampled_from([1, 2, 4]))
def test_a_plan_never_contradicts_the_mask(pattern: Pattern, q: Layout, k: Layout, unit: int) -> None:
    b = max(q.shape[0], k.shape[0])
    if min(q.shape[0], k.shape[0]) not in (1, b):
        return
    plan, (t, s) = make_plan(pattern, q, k, unit), (q.shape[1], k.shape[1])
    x, y = q.queries(), k.keys()
    mask = pattern.allowed(x, y) & (x.segment == y.segment) & (x.position >= 0) & (y.position >= 0)
    mask = mask.expand(b, t, s)
    computed, unmasked = spelled_out(plan, t, s)
    assert computed.max() <= 1 and n_scores(plan) == computed.sum()
    assert bool((computed[mask.any(0)] == 1).all()) and bool(mask.all(0)[unmasked > 0].all())


def test_the_strips_of_a_window_are_one_band() -> None:
    plan = plain_plan(causal() & window(16), 400, 400, 0, 0, 4)
    (band,) = [x for x in plan if isinstance(x, Band) and x.n > 1]
    assert (band.first, band.n) == (16, 96)
    assert band.runs == ((0, 4, 20, ((0, 4), (16, 20)), True),)
    assert len(plan) == 5, "and the first four strips, each by itself"


def test_global_tokens_are_a_run_that_stands_still() -> None:
    plan = plain_plan(window(8) | global_tokens(4), 400, 400, 0, 0, 4)
    band = max((x for x in plan if isinstance(x, Band)), key=lambda band: band.n)
    assert [(run.start, run.step, run.length) for run in band.runs] == [(0, 0, 4), (band.first - 8, 4, 20)]
    assert band.n > 90 and not band.runs[0].alike and band.runs[1].alike


def test_a_rule_that_stops_recurring_is_not_taken_for_alike() -> None:
    alike = {x.runs[0].alike for x in plain_plan(chunks(8, back=1), 64, 64, 0, 0, 4) if isinstance(x, Band)}
    assert alike == {False}, "chunks of 8 recur every 8 positions, not every 4"


def test_blocks_at_random_are_gathered_by_their_number() -> None:
    plan = plain_plan(chunks(4) | random_blocks(4, 2), 400, 400, 0, 0, 4)
    gathered = [x for x in plan if isinstance(x, Scattered)]
    assert sum(len(x.strips) for x in gathered) > 80
    assert all(len({len(blocks) for blocks in x.blocks}) == 1 for x in gathered)


def test_a_plan_grows_with_its_pairs_and_not_with_their_square() -> None:
    plan = make_plan(causal() & window(256), *[Layout.full(1 << 17)] * 2, 64)
    assert len(plan) == 5 and n_scores(plan) < (1 << 17) * 320


@pytest.mark.parametrize("rows", [Even(2, 3, 3, 4), Even(2, 2, 5, 4), Even(1, 0, 4, 3), Even(1, 4, 3, 3)])
def test_even_rows_reach_and_add_what_their_tokens_say(rows: Even) -> None:
    x, index = torch.randn(20, 6)[:, :5], rows.tokens()
    assert torch.equal(rows.of(x), x[index])
    more = torch.randn(*index.shape, 5)
    wanted = x.index_put((index,), more, accumulate=True)
    rows.add(x, more)
    torch.testing.assert_close(x, wanted)


def test_gathered_rows_reach_put_and_add_what_their_tokens_say() -> None:
    rows, x = Gathered(torch.tensor([[0, 3], [3, 1]]), 4), torch.randn(18, 5)
    index = rows.tokens()
    assert torch.equal(rows.of(x), x[index])
    more = torch.randn(*index.shape, 5)
    wanted = x.index_put((index,), more, accumulate=True)
    rows.add(x, more)
    torch.testing.assert_close(x, wanted)
    once = Gathered(torch.tensor([[2], [0]]), 4)
    once.put(x, more[:, :4])
    assert torch.equal(once.of(x), more[:, :4])
