"""A limit takes the first examples, and the others are counted."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from qkv.data.source import Skipped
from qkv.runs.evaluate.evaluate import evaluate_run
from qkv.runs.evaluate.example_counts import first
from qkv.runs.inference.run import load


def test_the_first_examples_are_those_that_stand_first_whatever_their_length() -> None:
    entries = [None, {"text": "long " * 9}, Skipped("empty"), None, {"text": "short"}, {"text": "more"}]
    assert first(entries, 2) == (({"text": "long " * 9}, Skipped("empty"), {"text": "short"}), 5)
    taken, stop = first(entries, 99)
    assert (len(taken), stop) == (4, 6)


def test_a_limit_says_how_much_there_is(trained: Path, trained_lm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, lm = load(trained, device="cpu"), load(trained_lm, device="cpu")
    found = evaluate_run(run, max_examples=5)
    assert (found.examples, found.available, found.limited) == (5, 20, True)
    found = evaluate_run(run, max_examples="all")
    assert (found.examples, found.available, found.limited) == (20, 20, False)
    some, everything = evaluate_run(lm, "train", max_examples=4), evaluate_run(lm, "train", max_examples="all")
    assert some.examples < some.available == everything.examples == everything.available
    with pytest.raises(ValueError, match="max_examples is 'all' or a number of at least 1, not 0"):
        evaluate_run(run, max_examples=0)
    ever_later = itertools.count()
    monkeypatch.setattr(
        "qkv.runs.evaluate.example_counts.Clock.seconds", property(lambda self: 10.0 ** next(ever_later))
    )
    assert evaluate_run(run, max_examples=5).available is None
