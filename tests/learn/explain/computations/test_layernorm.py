"""The numbers of `qkv explain layernorm`."""

from __future__ import annotations

import numpy as np
import torch
from displayed import check, column

from qkv.learn.explain.computations import layernorm
from qkv.learn.explain.registry import explain
from qkv.learn.explain.toy import language_model


def test_the_worked_example():
    explanation = layernorm.example()
    x, gain, bias = (np.array(values) for values in (layernorm.X, layernorm.GAIN, layernorm.BIAS))
    normal = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
    check(column(explanation.table("normalized"), "normalized"), normal)
    check(column(explanation.table("output"), "y"), normal * gain + bias)
    assert explanation.steps[0].lines == ("mean = 4.0000", "var  = 2.0000")
    check(column(explanation.table("output by coordinate"), "y"), x / np.sqrt((x**2).mean() + 1e-6))


def test_a_model():
    subject = language_model()
    explanation = explain("layernorm", subject)
    name = "decoder.layers.0.input"
    x = subject.record([name])[name][0, -1]
    check(column(explanation.table("output"), "y"), torch.nn.functional.layer_norm(x, (4,)).numpy())
