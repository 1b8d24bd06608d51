"""English numbers in words: worked examples, and the same digits as transformers' normalizer of Whisper."""

from __future__ import annotations

import itertools

import pytest

from qkv.core.metrics.english_numbers import in_digits


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("twenty five dollars", "$25"),
        ("nineteen eighty four", "1984"),
        ("two hundred and six", "206"),
        ("three point one four", "3.14"),
        ("minus three", "-3"),
        ("five million and one", "5000001"),
        ("twenty first", "21st"),
        ("a cat", "a cat"),
    ],
)
def test_numbers_are_written_in_digits(text: str, wanted: str) -> None:
    assert in_digits(text) == wanted


def test_pairs_of_words_are_read_as_by_transformers() -> None:
    module = pytest.importorskip("transformers.models.whisper.english_normalizer")
    theirs = module.EnglishNumberNormalizer()
    words = (
        "one ten eleven twenty hundred thousand million oh zero first third twentieth and a half double point 3 cats"
    )
    compared = 0
    for pair in itertools.product(words.split(), repeat=2):
        text = " ".join(pair)
        try:
            wanted = theirs(text)
        except (TypeError, ValueError, AttributeError):
            continue  # transformers fails at it
        assert in_digits(text) == wanted, text
        compared += 1
    assert compared > 300
