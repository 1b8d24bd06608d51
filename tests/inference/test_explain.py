"""A run explains a text with its own numbers, or says what it can."""

from __future__ import annotations

import pytest
from run_untrained import of, vit, words

from qkv.inference.explain import explain, subject


def test_a_runs_own_numbers():
    run = of("gpt2", words(), "continue", max_positions=32, n_layers=2)
    explanation = run.explain("attention", "ab", layer=1, head=1, token=1)
    assert "layer 1, head 1" in explanation.about and explanation.table("query q").rows == ("a",)


def test_a_translator_reads_a_target_or_its_own_output():
    run = of("transformer-base", words(), "translate")
    assert subject(run, "ab", "cd").target_tokens == ("<s>", "c", "d")
    assert subject(run, "ab").target_tokens[0] == "<s>"


def test_bad_input():
    lm = of("gpt2", words(), "continue", max_positions=8)
    with pytest.raises(ValueError, match="reads one text; --target is for encoder–decoders, leave it out"):
        explain(lm, "attention", "ab", "cd")
    with pytest.raises(ValueError, match="reads no text"):
        explain(vit(), "attention", "ab")
    with pytest.raises(ValueError, match="are more than this model's context of 8"):
        explain(lm, "attention", "abcdefghijkl")
    with pytest.raises(ValueError, match="--head 7 is not there: this run has heads 0 to 1 here"):
        explain(lm, "attention", "ab", head=7)
