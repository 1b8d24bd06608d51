"""Metrics of generated text. ROUGE agrees with Google's rouge-score 0.1.2, whose numbers are in rouge_golden.json
(make_rouge_golden.py)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.metrics.text import (
    _common,
    bits_per_byte,
    bleu,
    character_error_rate,
    chrf,
    exact_match,
    perplexity,
    rouge,
    word_error_rate,
)
from qkv.recipes.evaluation import ROUGE

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("rouge_golden.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["output"][:20])
@pytest.mark.parametrize("what", ROUGE)
def test_a_text_scores_as_rouge_score_has_it(case: dict[str, Any], what: str) -> None:
    assert rouge([case["output"]], [case["truth"]], what).value == pytest.approx(100 * case[what], abs=1e-9)


@pytest.mark.parametrize("what", ROUGE)
def test_several_texts_weigh_alike(what: str) -> None:
    outputs, truths = ([case[side] for case in CASES] for side in ("output", "truth"))
    assert rouge(outputs, truths, what).value == pytest.approx(100 * sum(c[what] for c in CASES) / len(CASES))


def slow(a: str, b: str) -> int:
    if not a or not b:
        return 0
    return 1 + slow(a[1:], b[1:]) if a[0] == b[0] else max(slow(a[1:], b), slow(a, b[1:]))


@given(st.text("abc", max_size=7), st.text("abc", max_size=7))
def test_the_longest_common_subsequence(a: str, b: str) -> None:
    assert _common(list(a), list(b)) == slow(a, b)


def test_exact_match_ignores_space_around_a_text() -> None:
    assert exact_match([" a b\n", "a  b", "A b"], ["a b"] * 3).value == pytest.approx(1 / 3)


def test_bleu_and_chrf_go_from_0_to_100() -> None:
    text = "the quick brown fox jumps over the lazy dog"
    for metric in (bleu, chrf):
        assert metric([text], [text]).value == pytest.approx(100)
        assert metric(["0 1 2 3"], [text]).value == pytest.approx(0)


def test_error_rates_count_edits_over_the_truths() -> None:
    assert word_error_rate(["a b x", "d"], ["a b c", "d e"]).value == pytest.approx(2 / 5)
    assert word_error_rate(["a b c"], ["a"]).value == 2
    assert character_error_rate(["abd"], ["abc"]).value == pytest.approx(1 / 3)


def test_perplexity_and_bits_per_byte_are_of_the_mean() -> None:
    assert perplexity(3 * math.log(5), 3) == pytest.approx(5) and perplexity(1e6, 1) == math.inf
    assert bits_per_byte(8 * math.log(2), 4) == pytest.approx(2)
