"""The numbers of `qkv explain mask`."""

from __future__ import annotations

import numpy as np
from displayed import check, column, numbers, softmax

from qkv.learn.explain.computations import mask


def test_the_worked_example():
    explanation = mask.example()
    weights = np.array(mask.WEIGHTS)
    full = weights / weights.sum(-1, keepdims=True)
    seen = np.tril(np.ones((6, 6)))
    check(numbers(explanation.table("weights")), full)
    kept = weights * seen
    check(numbers(explanation.table("weights with the mask")), kept / kept.sum(-1, keepdims=True))
    scores = np.where(seen > 0, np.log(weights), -np.inf)
    check(numbers(explanation.table("masked scores")), scores)
    sums = explanation.table("weight on the keys")
    check(column(sums, "masked scores"), np.ones(6))
    check(column(sums, "weights set to 0"), (full * seen).sum(-1))
    check(column(sums, "scores set to 0"), (softmax(np.log(weights) * seen) * seen).sum(-1))
    assert explanation.table("weights with the mask").texts()[1][:2] == ["0.0423", "0.9577"]
