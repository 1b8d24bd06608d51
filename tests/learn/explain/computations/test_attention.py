"""The numbers of `qkv explain attention`."""

from __future__ import annotations

import numpy as np
from displayed import check, column, exact, numbers, softmax

from qkv.learn.explain.computations import attention
from qkv.learn.explain.registry import explain
from qkv.learn.explain.toy import language_model


def test_the_worked_example():
    explanation = attention.example()
    q, k, v = np.array([2, 1]), np.array([[1, 0], [1, 1]]), np.array([[3, 6], [7, 12]])
    weights = softmax(k @ q)
    check(column(explanation.table("scores of the keys"), "q · k"), k @ q)
    check(column(explanation.table("weights of the keys"), "weight"), weights)
    check(numbers(explanation.table("output")), [weights @ v])
    assert explanation.table("output").texts() == [["5.9242", "10.3864"]]
    assert "out[1] = 0.2689 · 3 + 0.7311 · 7 = 5.9242" in explanation.steps[5].lines
    scaled = softmax(k @ q / np.sqrt(2))
    check(numbers(explanation.table("outputs")), [weights @ v, scaled @ v])
    check(column(explanation.table("scores and weights"), "its weight"), scaled)


def test_the_lookups():
    explanation = attention.example()
    check(column(explanation.table("looking up"), "similarity"), [1, 3 / 4])
    check(column(explanation.table("looking up"), "share of value"), [4, 6])
    keys, values, q = np.array([[1, 0], [1, 1], [0, 1]]), np.array([4, 6, 6]), np.array([0.5, 0])
    gaussian = softmax(-((keys - q) ** 2).sum(-1) / 2) @ values
    check(column(explanation.table("result by score"), "result"), [0, gaussian, softmax(keys @ q) @ values])
    assert explanation.table("result by score").texts() == [["0.0000"], ["5.0963"], ["5.2327"]]
    check(column(explanation.table("the database"), "distance"), [0.5, 1.25**0.5, 1.25**0.5])


def test_three_queries():
    explanation = attention.example()
    table = explanation.steps[-1].tables[-1]
    q, k, v = np.array([[1, 0], [2, 1], [0, 1]]), np.array([[1, 1], [0, 1]]), np.array([[4, 8], [6, 12]])
    check(numbers(table), softmax(q @ k.T) @ v)
    assert table.texts()[1] == ["4.2384", "8.4768"]


def test_a_model():
    subject = language_model()
    explanation = explain("attention", subject)
    q, k, v = (exact(explanation, f"{name}") for name in ("query q", "keys k", "values v"))
    weights = softmax(k @ q[0] / np.sqrt(q.shape[1]))  # the last token sees all
    check(column(explanation.table("weights of the keys"), "weight"), weights)
    check(numbers(explanation.table("output")), [weights @ v])
    x = subject.record(["decoder.layers.0.attention.input"])["decoder.layers.0.attention.input"][0].numpy()
    layer = subject.model.decoder.blocks[0].attention
    check(numbers(explanation.table("keys k")), (x @ layer.k.weight.detach().numpy().T)[:, :2])
