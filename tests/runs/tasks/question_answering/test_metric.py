"""The best span of a window, compared with all spans."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qkv.runs.tasks.question_answering.metric import best_span


@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 9999))
def test_the_best_span_is_the_best_of_all(size: int, longest: int, seed: int) -> None:
    scores = torch.randn(size, 2, generator=torch.Generator().manual_seed(seed))
    every = {(i, j): float(scores[i, 0] + scores[j, 1]) for i in range(size) for j in range(i, min(size, i + longest))}
    first, last, score = best_span(scores, longest)
    assert score == pytest.approx(max(every.values())) == pytest.approx(every[first, last])
