"""The model of a recipe: a preset or a directory, in one flat form."""

from __future__ import annotations

import pytest

from qkv.runs.recipes.model_choice import ModelChoice
from qkv.runs.recipes.recipe import Recipe


def test_a_model_choice_has_one_flat_form() -> None:
    choice = ModelChoice.from_dict({"preset": "gpt2", "n_layers": 2, "replace": {"decoder.position": "rotary"}})
    assert choice.to_dict() == {"preset": "gpt2", "n_layers": 2, "replace": {"decoder.position": "rotary"}}
    assert ModelChoice.from_dict(choice.to_dict()) == choice
    assert Recipe.load("lm", ["model=gpt2"]).model == ModelChoice(preset="gpt2")
    assert choice.spec().vocab_size == 50257
    assert choice.spec(99).vocab_size == 99


def test_an_unknown_preset_is_one_sentence_with_near_names() -> None:
    for recipe in (Recipe.load("lm", ["model.preset=gtp2"]), Recipe.load("lm", ["model=gtp2"])):
        with pytest.raises(ValueError, match=r"gtp2.*gpt2"):
            recipe.model.spec(500)
