"""Hostile recipes end soon: in a recipe, or in one short sentence that names the key."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from recipes import bombs, check, check_text, mutants

SEED = 16


def test_mutated_recipes_are_read_or_told_by_key() -> None:
    assert [found for mutant in mutants(SEED, 200) if (found := check(mutant)) is not None] == []


@pytest.mark.parametrize(("name", "text"), bombs(), ids=[name for name, _ in bombs()])
def test_a_text_that_is_no_recipe_is_refused_soon(name: str, text: str) -> None:
    assert check_text(name, text) is None
