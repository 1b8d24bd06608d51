"""Kinds of speculative decoding: their short forms, and settings that contradict each other."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from qkv.generation.settings import Generation
from qkv.generation.speculation import DraftModel, EarlyExit, PromptLookup, check_draft


def test_short_forms_are_kinds_with_their_defaults() -> None:
    for short, wanted in (
        ("lookup", PromptLookup()),
        ("draft", DraftModel()),
        ("early-exit", EarlyExit()),
        ("early-exit:2", EarlyExit(layers=2)),
    ):
        assert TypeAdapter(Generation).validate_python({"speculate": short}).speculate == wanted


def test_contradictions_are_refused() -> None:
    with pytest.raises(ValueError, match="min_ngram 5 is more than max_ngram 4"):
        PromptLookup(min_ngram=5)
    with pytest.raises(ValueError, match="names no number of layers"):
        Generation.from_dict({"speculate": "early-exit:all"})
    with pytest.raises(ValueError, match="there is no draft model"):
        check_draft(DraftModel(), None)
    with pytest.raises(ValueError, match="which uses no draft model"):
        check_draft(PromptLookup(), object())
    check_draft(None, None)
