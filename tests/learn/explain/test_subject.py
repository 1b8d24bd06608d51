"""What is chosen of a model is there, or the message says what is."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from qkv.learn.explain.subject import attended
from qkv.learn.explain.toy import language_model, translator


def test_indices_out_of_range_are_refused():
    for name in ("layer", "head", "token"):
        with pytest.raises(ValueError, match=f"--{name} 9 is not there: the example has {name}s 0 to"):
            replace(language_model(), **{name: 9}).attention("decoder")


def test_attention_of_each_place_has_its_tokens():
    subject = translator()
    assert subject.attention("encoder").queries == subject.tokens
    cross = subject.attention("cross")
    assert (cross.queries, cross.keys) == (subject.target_tokens, subject.tokens)
    assert subject.attention("decoder").masked.tolist() == [[False, True, True], [False, False, True], [False] * 3]


def test_one_head_over_matrices():
    a = attended([[2.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]], [[3.0, 6.0], [7.0, 12.0]], ("q",), ("k1", "k2"), scale=1.0)
    torch.testing.assert_close(a.scores, torch.tensor([[2.0, 3.0]]))
    torch.testing.assert_close(a.weights @ a.v, torch.tensor([[5.9242, 10.3864]]), atol=1e-4, rtol=0)


def test_tokens_are_visible():
    assert replace(language_model(), tokens=(" a", "\n", "b", "c", "d")).tokens == ("␣a", "↵", "b", "c", "d")
