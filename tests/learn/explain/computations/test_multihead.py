"""The numbers of `qkv explain multihead`."""

from __future__ import annotations

import numpy as np
from displayed import check, exact, numbers, softmax

from qkv.learn.explain.computations import multihead
from qkv.learn.explain.registry import explain
from qkv.learn.explain.toy import language_model


def test_the_worked_example():
    explanation = multihead.example()
    x, w_q, w_k, w_v, w_o = (exact(explanation, name) for name in ("x", "W_Q", "W_K", "W_V", "W_O"))
    q, k, v = x @ w_q.T, x @ w_k.T, x @ w_v.T
    heads, weights = [], []
    for h in range(2):
        part = slice(2 * h, 2 * h + 2)
        weights.append(softmax(q[2, part] @ k[:, part].T / np.sqrt(2)))
        heads.append(weights[-1] @ v[:, part])
    check(numbers(explanation.table("queries of")), q[2].reshape(2, 2))
    check(numbers(explanation.table("weights of")), weights)
    check(numbers(explanation.table("outputs for")), heads)
    check(numbers(explanation.table("concatenated")), [np.concatenate(heads)])
    check(numbers(explanation.table("output of the layer")), [np.concatenate(heads) @ w_o.T])


def test_a_model_returns_what_its_layer_returns():
    subject = language_model()
    explanation = explain("multihead", subject)
    layer = subject.model.decoder.blocks[0].attention
    concatenated = exact(explanation, "concatenated")
    check(numbers(explanation.table("output of the layer")), concatenated @ layer.out.weight.detach().numpy().T)
