"""The numbers of `qkv explain cross`."""

from __future__ import annotations

import numpy as np
from displayed import check, column, exact, numbers, softmax

from qkv.learn.explain.computations import cross


def test_the_worked_example():
    explanation = cross.example()
    q, k, v = (exact(explanation, name) for name in ("query q", "keys k", "values v"))
    assert k.shape == (5, 2) and explanation.table("keys k").rows == ("she", "saw", "a", "red", "boat")
    weights = softmax(k @ q[0] / np.sqrt(2))
    check(column(explanation.table("weights of the keys"), "weight"), weights)
    check(numbers(explanation.table("output")), [weights @ v])
    everything = explanation.steps[-1].tables[0]
    check(numbers(everything)[-1], weights)
    check(numbers(everything).sum(-1), [1, 1, 1], rounding=3e-4)
