"""Patterns traced for one pair decide as the patterns do over all pairs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from qkv.core.layout import Layout, View
from qkv.nn.kernels.pairwise import refuses, rule
from qkv.nn.patterns.basic import Pattern, causal, documents, global_tokens, prefix, sinks, window
from qkv.nn.patterns.bigbird import BigBird

LAYOUT = Layout.packed([[5, 4]], 9).with_roles((torch.arange(9) < 3).long()[None] * 4)
PATTERNS = {
    "causal window with sinks": causal() & (window(3) | sinks(1)),
    "documents": causal() & documents(),
    "prefix": causal() | prefix(),
    "global": window(2) | global_tokens(2),
    "heads": BigBird(size=1, random=1, seed=3, blocks=9, heads=2),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_rule_decides_each_pair_as_the_pattern(name: str) -> None:
    pattern = PATTERNS[name]
    made = rule(pattern, 1, torch.device("cpu"))
    view = LAYOUT.queries()
    numbers = [x.broadcast_to(1, 9, 1).flatten() for x in (view.position, view.segment, view.role)]
    for head in range(2):
        number = torch.tensor([head])
        whole = pattern.allowed(LAYOUT.queries(), LAYOUT.keys(), number if pattern.per_head else None)
        whole = whole.broadcast_to(1, 1, 9, 9)[0, 0] if whole.ndim == 4 else whole.broadcast_to(1, 9, 9)[0]
        for q in range(9):
            for k in range(9):
                sides: Any = [[x[i : i + 1] for x in numbers] for i in (q, k)]
                assert bool(made.decide(number, *sides, made.tables)) == bool(whole[q, k]), (head, q, k)


def test_what_is_no_arithmetic_on_a_pair_is_refused() -> None:
    class Sorting(Pattern, kind="sorting-pairwise-test"):
        def allowed(self, q: View, k: View, head: torch.Tensor | None = None) -> torch.Tensor:
            return k.position.sort(-1).values <= q.position

    said = refuses(Sorting(), 1)
    assert said is not None and "more than arithmetic on one pair: it calls aten.sort" in said
    assert refuses(causal(), 1) is None
