"""The numbers of `qkv explain kv-cache`."""

from __future__ import annotations

import numpy as np
from displayed import check, column, exact, softmax

from qkv.learn.explain.computations import kv_cache
from qkv.learn.explain.toy import language_model, translator


def test_the_worked_example():
    explanation = kv_cache.example()
    keys = explanation.table("keys")
    assert keys.rows == ("a (cache)", "cat (cache)", "saw (cache)", "a (cache)", "mat (new)")
    subject = language_model()
    full = subject.attention("decoder")
    check(exact(explanation, "keys"), full.k.numpy(), rounding=1e-6)
    weights = softmax(full.q[-1].numpy() @ full.k.numpy().T / np.sqrt(2))
    table = explanation.table("weights of the new token")
    check(column(table, "weight"), weights)
    check(column(table, "weight, recomputed"), weights)
    differences = explanation.table("with and without").values
    assert all(float(str(value)) < 1e-5 for (value,) in differences)
    work = explanation.table("work by tokens")
    check(column(work, "with cache"), [1, 5, 15])
    check(column(work, "without"), [5, 15, 55])
    assert "2 · 1 · 2 · 2 · 4 = 32 bytes" in explanation.steps[-1].text


def test_an_encoder_decoder_has_a_cache_too():
    assert kv_cache.of(translator()).table("keys").rows[-1] == "sah (new)"
