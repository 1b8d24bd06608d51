"""Preparing a training reads the data and settles the settings, and writes nothing."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
import torch
from rich.console import Console
from run_tiny import TINY

from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.prepare import Prepared, prepare, read
from qkv.training.parallel.team import Team


@pytest.fixture
def recipe() -> Recipe:
    return Recipe.load("reverse", [*TINY, "training.precision=auto"])


def of(recipe: Recipe, out: Path) -> tuple[Recipe, Path, Team, bool, Console]:
    return recipe, out, Team.alone(torch.device("cpu")), False, Console(quiet=True)


def test_what_is_read_leaves_the_settings_and_the_disk_alone(recipe: Recipe, tmp_path: Path) -> None:
    found = read(*of(recipe, tmp_path / "run"))
    assert found.recipe.training.precision == "auto" and found.first is None
    assert found.tokenizer is not None and found.spec.vocab_size == found.tokenizer.vocab_size
    assert found.use == "translate" and any(note.startswith("Data: ") for note in found.notes)
    assert not list(tmp_path.iterdir())


def test_what_is_prepared_is_settled_and_can_not_be_changed(recipe: Recipe, tmp_path: Path) -> None:
    prepared = prepare(*of(recipe, tmp_path / "run"))
    assert isinstance(prepared, Prepared) and prepared.recipe.training.precision != "auto"
    assert prepared.first is not None and prepared.first.labels is not None
    with pytest.raises(FrozenInstanceError):
        prepared.sizes = ""  # type: ignore[misc]
    assert not list(tmp_path.iterdir())


def test_preparing_again_looks_at_the_same_batch(recipe: Recipe, tmp_path: Path) -> None:
    prepared = prepare(*of(recipe, tmp_path / "run"))
    again = prepare(*of(recipe, tmp_path / "run"))
    assert prepared.first is not None and again.first is not None
    assert torch.equal(prepared.first.inputs["ids"], again.first.inputs["ids"])
    with prepared.open(None) as batches:
        assert next(batches).labels is not None
