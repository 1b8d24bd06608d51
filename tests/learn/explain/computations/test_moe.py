"""The numbers of `qkv explain moe`."""

from __future__ import annotations

import numpy as np
from displayed import check, column, exact, numbers, softmax
from run_untrained import of, words

from qkv.learn.explain.computations import moe
from qkv.learn.explain.of_run import subject
from qkv.learn.explain.registry import explain
from qkv.nn.layers.moe import Mixture


def test_the_worked_example():
    explanation = moe.example()
    scores = exact(explanation, "scores by token")
    p = softmax(scores)
    check(numbers(explanation.table("probabilities")), p)
    best = np.argsort(-p, axis=-1, kind="stable")[:, :2]
    gates = np.take_along_axis(p, best, -1)
    gates /= gates.sum(-1, keepdims=True)
    choices = explanation.table("choices of each token")
    check(column(choices, "gate 1"), gates[:, 0])
    check(column(choices, "gate 2"), gates[:, 1])
    check(numbers(explanation.table("output y"))[0], gates[1] @ exact(explanation, "outputs of the experts"))
    load = explanation.table("load of the experts")
    counted = np.array(
        [sum(int(str(row[c]).split()[1]) == e for row in choices.values for c in (0, 2)) for e in range(4)]
    )
    check(column(load, "choices"), counted)
    check(column(load, "P: mean probability"), p.mean(0))
    assert explanation.steps[4].lines == (f"balance = {4 * (counted / 12 * p.mean(0)).sum():.4f}",)
    check(column(explanation.table("parameters"), "parameters"), [4 * 4 + 4 * 2 * 16, 4 * 4 + 2 * 2 * 16])


def test_a_runs_experts():
    run = of("mixtral-8x7b", words(), "continue", n_kv_heads=1)
    explanation = explain("moe", subject(run, "ab"))
    (layer,) = [module for module in run.model.modules() if isinstance(module, Mixture)]
    assert len(explanation.table("load of the experts").rows) == layer.spec.n_experts == 8
    gates = [row[1] for row in explanation.table("choices of each token").values]
    assert all(0 < float(str(gate)) <= 1 for gate in gates)
    outputs = exact(explanation, "outputs of the experts")
    last = explanation.table("choices of each token").values[-1]
    check(
        numbers(explanation.table("output y"))[0], float(str(last[1])) * outputs[0] + float(str(last[3])) * outputs[1]
    )
