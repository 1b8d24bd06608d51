"""Block plans: every block that may hold an allowed pair, and no more than grow with the pairs."""

from __future__ import annotations

import pytest
import torch
from blocks_drawn import PATTERNS, layouts
from hypothesis import given
from hypothesis import strategies as st

from qkv.core.layout import Layout
from qkv.nn.kernels.cpu.block_plan import consecutive, n_scores, plan, share, visited_blocks
from qkv.nn.patterns.basic import Pattern, causal, dilated, full, global_tokens, sinks, strided, window

GAPS: dict[str, Pattern] = {
    "dilated": dilated(4, 3),
    "dilated past": causal() & dilated(4, 3),
    "dilated in a window": dilated(9, 3) & window(14, 8),
    "strided": strided(6),
    "strided past": causal() & strided(6),
    "far": causal() & strided(6, "far"),
    "far of few": strided(200, "far"),
}


@given(st.sampled_from(PATTERNS), layouts(), layouts(), st.sampled_from([1, 2, 4]))
def test_visited_blocks_never_contradict_the_mask(pattern: Pattern, q: Layout, k: Layout, unit: int) -> None:
    b = max(q.shape[0], k.shape[0])
    if min(q.shape[0], k.shape[0]) not in (1, b):
        return
    t, s = q.shape[1], k.shape[1]
    x, y = q.queries(), k.keys()
    mask = pattern.allowed(x, y) & (x.segment == y.segment) & (x.position >= 0) & (y.position >= 0)
    mask = mask.expand(b, t, s)
    computed, unmasked = torch.zeros(t, s, dtype=torch.long), torch.zeros(t, s, dtype=torch.bool)
    for i, j, sure in zip(*(x.tolist() for x in visited_blocks(pattern, q, k, unit, unit)), strict=True):
        tile = slice(i * unit, (i + 1) * unit), slice(j * unit, (j + 1) * unit)
        computed[tile] += 1
        unmasked[tile] |= sure
    assert computed.max() <= 1
    assert bool((computed[mask.any(0)] == 1).all()) and bool(mask.all(0)[unmasked].all())


def test_scores_are_counted_up_to_the_edges() -> None:
    plans = consecutive(causal(), 100, 100, 0, 0)
    assert plans is not None and n_scores(plans) == 64 * 64 + 36 * 100
    assert share((plans,), 100, 100) == 3 * 64**2 / 100**2


def test_a_plan_grows_with_its_pairs_and_not_with_their_square() -> None:
    layout = Layout.full(1 << 17)
    made = plan(causal() & window(256), layout, layout)
    assert made is not None and len(made.limits) == 2 and n_scores((made,)) < (1 << 17) * 320


def test_global_tokens_are_met_by_every_strip() -> None:
    made = plan(window(8) | global_tokens(4), Layout.full(640), Layout.full(640))
    assert made is not None and made.block[made.ends[:-1]].tolist() == [0] * 10


@pytest.mark.parametrize("pattern", GAPS.values(), ids=GAPS)
def test_the_parts_of_a_regrouped_rule_are_disjoint_and_together_the_rule(pattern: Pattern) -> None:
    n, seen = 50, torch.zeros(50, 50, dtype=torch.long)
    index = torch.arange(n)
    for d, rule in pattern.regroup() or ():
        same = index[:, None] % d == index % d
        seen += rule.mask(Layout(index[None] // d)) & same
    assert torch.equal(seen, pattern.mask(n).long())


def test_a_rule_that_can_not_be_thinned_is_not_regrouped() -> None:
    assert (dilated(4, 3) & sinks(5)).regroup() is None
    assert (dilated(4, 3) & strided(6)).regroup() is None
    assert (full() & window(4)).regroup() is None
