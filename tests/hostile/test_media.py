"""Broken and hostile pictures, sounds and music are read or refused with a reason, within limited memory and time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from media import bombs, check, mutants, whole, wrong

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by Linux")


def test_bombs_and_mutants_are_read_or_refused_and_what_is_mutated_is_read() -> None:
    """Together: the process that tries them takes seconds to begin."""
    files = [*whole(), *bombs(), *mutants(0, 60)]
    found = check(files)
    for file, (how, _) in zip(whole(), found, strict=False):
        assert how.split("; ")[0] == "works", (file.name, how)
    assert wrong(files, found) == []


def test_the_same_seed_gives_the_same_mutants() -> None:
    assert list(mutants(5, 20)) == list(mutants(5, 20)) != list(mutants(6, 20))


@pytest.mark.slow
def test_many_mutants() -> None:
    files = list(mutants(1, 20_000))
    assert wrong(files, check(files)) == []
