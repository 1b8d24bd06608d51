"""Stopping criteria: stop strings, and which criterion ends a row first."""

from __future__ import annotations

import pytest

from qkv.generation.settings import Generation
from qkv.generation.stopping import SearchOptions, StopStrings, cut_at


def decode(tokens: list[int]) -> str:
    return "".join(map(chr, tokens))


def test_a_row_ends_when_its_text_contains_a_stop_string() -> None:
    stop = StopStrings(decode, ["bc", "x"])
    assert stop([*b"abc"]) and stop([*b"ax"]) and not stop([*b"acb"])
    with pytest.raises(ValueError, match="a stop string is empty"):
        StopStrings(decode, ["a", ""])


def test_a_text_is_cut_at_the_first_stop_string() -> None:
    assert cut_at("one. two; three.", [";", "."]) == "one"
    assert cut_at("one", ["."]) == cut_at("one", []) == "one"


def test_the_end_of_sequence_comes_before_the_other_reasons() -> None:
    options = SearchOptions(Generation(), eos=frozenset({5}), stop=lambda tokens: 4 in tokens)
    assert options.ending([4, 5], limit=2) == "eos"
    assert options.ending([4, 3], limit=2) == "stop"
    assert options.ending([1, 3], limit=2) == "length"
    assert options.ending([1, 3], limit=3) is None
