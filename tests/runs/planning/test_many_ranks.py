"""Layouts as they are written: what is left out, and what is no layout."""

from __future__ import annotations

from typing import Any

import pytest

from qkv.nn.cost.plan.work import ModelWork, work
from qkv.runs.planning.many_ranks import _layout, of_scale
from qkv.runs.planning.published_models import spec_of
from qkv.training.parallel.scale import Scale


@pytest.fixture(scope="module")
def model() -> ModelWork:
    return work("gpt2", spec_of("gpt2", {}), 1024)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tensor=2", {"data": 4, "tensor": 2, "zero": 0, "microbatches": 1, "rows": 6}),  # data takes the other ranks
        ("shard=8", {"shard": 8, "zero": 3, "rows": 3}),
        ("shard=8,zero=0", {"zero": 1}),
        ("shard=2,pipeline=4", {"zero": 1, "microbatches": 12, "rows": 1}),
        ("pipeline=2 data=4", {"microbatches": 6, "rows": 1}),  # at most 4 for each stage
        ("data=8,microbatches=2", {"microbatches": 1, "rows": 3}),  # 3 rows aren't divided by 2
        ("data=8,recompute=blocks", {"recompute": "blocks"}),
    ],
)
def test_what_is_left_out_is_chosen(text: str, expected: dict[str, Any], model: ModelWork) -> None:
    layout = _layout(text, model, 8, 24)
    assert layout is not None and {name: getattr(layout, name) for name in expected} == expected
    assert layout.batch == 24 and layout.ranks == 8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tenser=2", "--layout has no 'tenser'; did you mean 'tensor'"),
        ("data=two", "data of --layout is a number, not 'two'"),
        ("data=2,data=4", "data is given twice in --layout"),
        ("zero=4", "zero is 0, 1, 2 or 3"),
        ("tensor=0", "axes of --layout are at least 1"),
        ("recompute=all", "recompute of --layout is none, alternate or blocks, not 'all'"),
    ],
)
def test_what_is_no_layout_is_refused(text: str, said: str, model: ModelWork) -> None:
    with pytest.raises(ValueError, match=said):
        _layout(text, model, 8, 24)


def test_without_a_layout_none_is_asked_for(model: ModelWork) -> None:
    assert _layout(None, model, 8, 24) is None


def test_a_recipes_scale_is_a_layout_of_its_rows(model: ModelWork) -> None:
    layout = of_scale(Scale(tensor=2), model, 8, 64, 2)
    assert (layout.data, layout.tensor, layout.microbatches, layout.rows) == (4, 2, 2, 8)
