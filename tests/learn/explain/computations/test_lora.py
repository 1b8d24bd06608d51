"""The numbers of `qkv explain lora`."""

from __future__ import annotations

import numpy as np
from displayed import check, column, numbers

import qkv
from qkv.learn.explain.computations import lora
from qkv.learn.explain.registry import applicable, explain
from qkv.learn.explain.toy import language_model


def test_the_worked_example():
    explanation = lora.example()
    w, a, b, x = (np.array(values) for values in (lora.W, lora.A, lora.B, lora.X))
    check(column(explanation.table("outputs"), "y"), w @ x + 2 * b @ (a @ x))
    check(numbers(explanation.table("s · B A")), 2 * b @ a)
    check(numbers(explanation.table("W'")), w + 2 * b @ a)
    check(numbers(explanation.table("outputs of both")), [w @ x + 2 * b @ (a @ x)] * 2)
    check(column(explanation.table("parameters"), "parameters"), [12, 7])


def test_a_model_with_an_adapter():
    subject = language_model()
    assert "lora" not in applicable(subject)
    qkv.adapt(subject.model, qkv.LoRA(rank=2, layers=("*.attention.q",)))
    explanation = explain("lora", subject)
    check(column(explanation.table("outputs"), "s · B (A x)"), np.zeros(4))  # B starts at 0
    assert explanation.table("A x").rows == ("mat",)
