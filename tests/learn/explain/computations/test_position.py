"""The numbers of `qkv explain position`."""

from __future__ import annotations

import numpy as np
from displayed import check, column, exact, numbers

from qkv.learn.explain.computations import position
from qkv.learn.explain.registry import explain
from qkv.learn.explain.toy import language_model


def sinusoids(count: int, width: int) -> np.ndarray:
    angles = np.arange(count)[:, None] * 10000.0 ** (-2 * np.arange(width // 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(count, width)


def test_sinusoids():
    explanation = position.example()
    values = sinusoids(10, 8)
    check(numbers(explanation.table("sinusoidal values")), values[:8])
    products = explanation.table("dot products")
    check(column(products, "PE(0) · PE(k)"), [values[0] @ values[k] for k in range(8)])
    check(column(products, "PE(2) · PE(2 + k)"), [values[2] @ values[2 + k] for k in range(8)])
    check(column(explanation.table("rates"), "rate"), [1, 0.1, 0.01, 0.001])


def test_rotation_depends_on_distance():
    explanation = position.example()
    scores = exact(explanation, "scores by distance")
    rates = np.array([1.0, 0.01])  # two pairs; half of the width apart
    q, k = np.array(position.QUERY), np.array(position.KEY)
    q, k = q[:2] + 1j * q[2:], k[:2] + 1j * k[2:]
    expected = [(q * np.exp(1j * d * rates) * k.conj()).real.sum() for d in range(5)]
    for c in range(3):
        check(scores[:, c], expected)


def test_alibi():
    explanation = position.example()
    check(column(explanation.table("slopes"), "slope m"), [2**-2, 2**-4, 2**-6, 2**-8])
    places = np.arange(5)
    check(numbers(explanation.table("bias of head 0")), -0.25 * abs(places[:, None] - places))


def test_a_model():
    explanation = explain("position", language_model())
    check(numbers(explanation.table("values by token")), sinusoids(5, 4))
