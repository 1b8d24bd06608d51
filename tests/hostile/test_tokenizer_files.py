"""Hostile and broken tokenizer.json files end in a tokenizer that works or in one sentence, within limited memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from tokenizer_files import BOMBS, check, mutants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by Linux")


def test_bombs_and_mutants_end_in_one_sentence() -> None:
    """Together: the process that tries them takes seconds to begin."""
    texts = {**BOMBS, **{f"mutant {i}": text for i, text in enumerate(mutants(0, 200))}}
    found = dict(zip(texts, check(list(texts.values())), strict=True))
    wrong = {name: how for name, (how, seconds) in found.items() if how.startswith("crash") or seconds > 10}
    assert not wrong, wrong
    allowed = [
        name
        for name in found
        if name.startswith(("normalizer-", "decoder-", "template-")) and found[name][0] == "works"
    ]
    assert not allowed, f"what multiplies a text was let through: {allowed}"


def test_the_same_seed_gives_the_same_mutants() -> None:
    assert list(mutants(5, 20)) == list(mutants(5, 20)) != list(mutants(6, 20))


@pytest.mark.slow
def test_many_mutants() -> None:
    texts = list(mutants(1, 3000))
    wrong = [(how, text[:500]) for text, (how, _) in zip(texts, check(texts), strict=True) if how.startswith("crash")]
    assert not wrong, wrong[:3]
