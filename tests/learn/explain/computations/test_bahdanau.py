"""The numbers of `qkv explain bahdanau`."""

from __future__ import annotations

import numpy as np
import torch
from displayed import check, column, numbers, softmax
from run_untrained import words

import qkv
from qkv.learn.explain.computations import bahdanau
from qkv.learn.explain.of_run import subject
from qkv.learn.explain.registry import applicable, explain
from qkv.nn.attention import tap
from qkv.runs.inference.run import Run


def test_the_worked_example():
    explanation = bahdanau.example()
    h, s = np.array(bahdanau.STATES), np.array(bahdanau.BEFORE)
    w_s, w_h, v = (np.array(x) for x in (bahdanau.W_S, bahdanau.W_H, bahdanau.V))
    e = np.tanh(w_s @ s + h @ w_h.T) @ v
    check(numbers(explanation.table("W_h h")), h @ w_h.T)
    check(column(explanation.table("scores"), "score e"), e)
    check(column(explanation.table("weights of the source"), "weight a"), softmax(e))
    check(numbers(explanation.table("context")), [softmax(e) @ h])


def test_a_recurrent_model():
    tokenizer = words()
    spec = qkv.preset("rnnsearch", vocab_size=tokenizer.vocab_size, d_e=4, d_h=3, d_s=4)
    run = Run(qkv.build(spec, seed=0).eval(), tokenizer, task="translate")
    read = subject(run, "abc", "de")
    assert applicable(read) == ["bahdanau", "beam"]
    explanation = explain("bahdanau", read)
    with torch.no_grad(), tap.record_attention() as requests:
        run.model(*read.inputs)
    weights = requests[-1].known_weights[0, 0].double().numpy()
    check(column(explanation.table("weights of the source"), "weight a"), weights[2])
    check(softmax(column(explanation.table("scores"), "score e")), weights[2], rounding=1e-4)
    check(numbers(explanation.steps[-1].tables[0]), weights)
