"""The numbers of `qkv explain decoder-step`."""

from __future__ import annotations

import torch
from displayed import check, column, numbers

from qkv.learn.explain.computations import decoder_step
from qkv.learn.explain.toy import translator


def test_the_third_word_of_a_five_word_source():
    explanation = decoder_step.example()
    own, cross = explanation.steps[1].tables[0], explanation.steps[2].tables[0]
    assert own.rows == ("<s>", "sie", "sah") and cross.rows == ("she", "saw", "a", "red", "boat")
    subject = translator()
    with torch.no_grad():
        logits = subject.model(*subject.inputs)[0, -1].double()
    probabilities = logits.exp() / logits.exp().sum()
    top = probabilities.sort(descending=True).values[:5]
    check(column(explanation.table("likeliest next words"), "probability"), top.numpy())
    vector = numbers(explanation.table("the vector of"))
    check(vector[:4].sum(0), vector[4], rounding=3e-4)  # the residual stream
    for table in (own, cross):
        check(column(table, "weight").sum(), 1, rounding=3e-4)
