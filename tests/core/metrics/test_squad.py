"""SQuAD's exact match and F1: values worked out by the rules of its script."""

from __future__ import annotations

import pytest

from qkv.core.metrics.squad import exact, normalized, token_f1


@pytest.mark.parametrize(
    ("answer", "truths", "em", "f1"),
    [
        ("The Denver Broncos!", ("Denver Broncos",), 1.0, 1.0),
        ("in Denver", ("Denver",), 0.0, 2 / 3),
        ("Denver, Colorado", ("Colorado Denver", "Denver"), 0.0, 1.0),
        ("Denver", ("", "Denver"), 1.0, 1.0),
        ("", ("",), 1.0, 1.0),
        ("Denver", ("",), 0.0, 0.0),
        ("the", ("an",), 1.0, 1.0),
        ("a cat a cat", ("cat",), 0.0, 2 / 3),
        ("U.S. Army", ("us army",), 1.0, 1.0),
        ("theory", ("ory",), 0.0, 0.0),
        ("", ("the", "Denver"), 0.0, 0.0),  # a truth of which nothing is left is none beside others
    ],
)
def test_exact_match_and_f1_are_squads(answer: str, truths: tuple[str, ...], em: float, f1: float) -> None:
    assert exact(answer, truths) == em
    assert token_f1(answer, truths) == pytest.approx(f1)


def test_normalized_answers_have_no_articles_punctuation_or_case() -> None:
    assert normalized("  The U.S.'s  \t an-other A ") == "uss another"
