"""ROUGE agrees with Google's rouge-score 0.1.2, whose numbers are kept in rouge_golden.json (make_rouge_golden.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.metrics.text import _common, rouge
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
