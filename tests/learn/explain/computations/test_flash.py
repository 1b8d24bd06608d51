"""The numbers of `qkv explain flash`."""

from __future__ import annotations

import numpy as np
from displayed import check, column, numbers, softmax

from qkv.learn.explain.computations import flash
from qkv.learn.explain.registry import explain
from qkv.learn.explain.toy import language_model


def test_the_worked_example():
    explanation = flash.example()
    s, v = np.array(flash.SCORES), np.array(flash.VALUES)
    carried = explanation.table("after each tile")
    maxima = [s[: i + 2].max() for i in (0, 2, 4)]
    check(column(carried, "m"), maxima)
    check(column(carried, "exp(m_old − m)"), [0, np.exp(3 - 5), 1])
    check(column(carried, "l"), [np.exp(s[: 2 * i + 2] - maxima[i]).sum() for i in range(3)])
    check(column(carried, "acc[1]"), [np.exp(s[: 2 * i + 2] - maxima[i]) @ v[: 2 * i + 2] for i in range(3)])
    for caption in ("output", "merged output"):
        check(numbers(explanation.table(caption)), np.full((2, 1), softmax(s) @ v))
    assert explanation.steps[3].lines[0].startswith(f"lse = {np.log(np.exp(s).sum()):.4f} ")


def test_a_model_gives_the_output_of_its_attention():
    subject = language_model()
    tiles, attention = explain("flash", subject), explain("attention", subject)
    check(numbers(tiles.table("output"))[0], numbers(attention.table("output"))[0], rounding=1.1e-4)
