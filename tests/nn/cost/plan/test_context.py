"""Communication of context parallelism: the numbers that each rank sends, counted by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qkv.nn.cost.plan.context import Method, exchanged, method_of
from qkv.nn.cost.plan.layout import RankLayout

LAYER: Any = SimpleNamespace(tokens=64, heads=8, kv_heads=2, d_head=4, d_model=32, apart="keys", gathers=False)
BYTES: Any = SimpleNamespace(send=lambda n: n, all_gather=lambda n: n, all_to_all=lambda n: n)
HOW: Any = SimpleNamespace(width=2)


def layer(**changes: Any) -> Any:
    return SimpleNamespace(**{**vars(LAYER), **changes})


@pytest.mark.parametrize(
    ("changes", "layout", "method"),
    [
        ({}, {"context": 4}, "ring"),
        ({}, {"context": 2, "attention": "all-to-all"}, "all-to-all"),
        ({}, {"context": 4, "attention": "all-to-all"}, "all-gather"),  # 2 key-value heads for 4 ranks
        ({}, {"context": 2, "tensor": 2, "attention": "all-to-all"}, "all-gather"),
        ({"heads": 0}, {"context": 2, "attention": "all-to-all"}, "all-gather"),
        ({"gathers": True}, {"context": 4}, "all-gather"),
        ({"apart": "sums"}, {"context": 4}, "sums"),
        ({"apart": "whole"}, {"context": 4}, "whole"),
    ],
)
def test_the_method_fits_the_layer_and_the_layout(
    changes: dict[str, Any], layout: dict[str, Any], method: Method
) -> None:
    assert method_of(layer(**changes), RankLayout(**layout)) == method


def test_a_ring_sends_keys_and_values_around_and_is_hidden_by_computing() -> None:
    layout = RankLayout(context=4, rows=3)
    keys = 2 * (3 * 64 / 4) * 2 * 4 * 2  # keys and values, tokens, heads, width, bytes
    seconds, exposed = exchanged(LAYER, layout, BYTES, HOW, computing=0.0)
    assert seconds == exposed == 3 * 3 * keys  # forward once, backward twice, to three others
    assert exchanged(LAYER, layout, BYTES, HOW, computing=4 / 3 * seconds)[1] == 0.0


def test_all_to_all_sends_queries_outputs_keys_and_values_forward_and_backward() -> None:
    layout = RankLayout(context=2, attention="all-to-all")
    seconds, _ = exchanged(LAYER, layout, BYTES, HOW, computing=0.0)
    assert seconds == 2 * (2 * 32 * (8 + 2) * 4 * 2)
