"""The steps of one query: scaled and masked scores, their soft-max, and the weighted sum of the values."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from displayed import check, column, numbers

from qkv.core.layout import Layout
from qkv.learn.explain import one_query
from qkv.nn.attention import tap
from qkv.nn.attention.attend import attend
from qkv.nn.patterns.basic import causal


def attended(token: int, **options: Any) -> Any:
    """Attention of three tokens, of which the chosen one is explained."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 3, 1, 4)
    layout = Layout.full(3)
    with tap.record_attention() as requests:
        attend(q, k, v, pattern=causal(), layout=layout, kv_layout=layout, **options)
    scores = (q[0, :, 0] @ k[0, :, 0].T) * requests[0].scale
    masked = torch.ones(3, 3).triu(1).bool()
    scores = scores.masked_fill(masked, -math.inf)
    words = ("a", "b", "c")
    return SimpleNamespace(
        q=q[0, :, 0], k=k[0, :, 0], v=v[0, :, 0], queries=words, keys=words, token=token, head=0,
        request=requests[0], scores=scores, weights=scores.softmax(-1), masked=masked,
    )  # fmt: skip


def test_masked_keys_have_no_weight() -> None:
    a = attended(1)
    similarities, weights = one_query.similarities(a), one_query.weights(a)
    assert similarities.equation == "s = q · k / √d" and "1 of 3 keys are masked" in similarities.text
    check(column(similarities.tables[0], "q · k")[:2], (a.k @ a.q[1])[:2].tolist())
    check(column(weights.tables[0], "weight"), a.weights[1].tolist())
    assert a.weights[1, 2] == 0


def test_the_output_is_the_sum_of_weighted_values() -> None:
    a = attended(2)
    step = one_query.weighted_sum(a)
    check(numbers(step.tables[-1]), [(a.weights[2] @ a.v).tolist()])
    torch.testing.assert_close(one_query.output(a), a.weights @ a.v)
    assert [len(one_query.steps(a)), len(step.lines)] == [4, 4]


@pytest.mark.parametrize(("scale", "said"), [(1.0, "s = q · k"), (0.3, "s = scale · q · k")])
def test_the_equation_tells_the_scale(scale: float, said: str) -> None:
    assert one_query.similarities(attended(0, scale=scale)).equation == said


def test_large_scores_are_shifted_before_the_exponential() -> None:
    a = attended(2)
    a.scores = a.scores * 100
    a.weights = a.scores.softmax(-1)
    step = one_query.weights(a)
    assert "The largest score is subtracted first" in step.text and step.lines[0].startswith("Σ exp(s − max) = ")
