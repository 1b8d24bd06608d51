"""Sizes of presets: which of a recipe's sizes stay beside a named preset, and values that can't be."""

from __future__ import annotations

from typing import Any

import pytest

from qkv.runs.recipes.sizes import (
    check_sizes,
    kept_sizes,
    names_an_architecture,
    preset_note,
    recipe_of_preset,
    sizes_of,
)


def test_sizes_are_the_presets_own_or_the_functions() -> None:
    sizes = sizes_of("gpt2-medium")
    assert (sizes["d_model"], sizes["n_layers"], sizes["n_heads"]) == (1024, 24, 16)  # Radford et al. 2019, table 2
    assert sizes["vocab_size"] == 50257


def test_an_architecture_takes_all_sizes_and_a_published_model_few() -> None:
    assert names_an_architecture("llama") and not names_an_architecture("llama-2-7b")
    given = {"d_model": 64, "vocab_size": 300, "dropout": 0.1, "mine": 1}
    assert kept_sizes("transformer", given) == {"d_model", "vocab_size", "dropout"}
    assert kept_sizes("gpt2-medium", given) == {"vocab_size", "dropout"}
    note = preset_note("gpt2-medium", {"vocab_size": 300}, {"d_model": 64, "mine": 1})
    assert "takes its own sizes in place of the recipe's d_model=64" in note and "has no mine" in note
    assert preset_note("gpt2-medium", {}, {"d_model": 1024}) == "", "an equal size is not replaced"


@pytest.mark.parametrize(
    ("preset", "recipe"),
    [
        ("gpt2", "lm"),
        ("t5-small", "translate"),
        ("bert-base", "classify"),
        ("vit-base-16", "vit"),
        ("rnnsearch", "translate"),
    ],
)
def test_a_preset_names_a_recipe_that_trains_it(preset: str, recipe: str) -> None:
    assert f"`qkv train {recipe} model.preset={preset}`" in (recipe_of_preset(preset) or "")
    assert recipe_of_preset("none") is None


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"n_layers": 0}, "model.n_layers is a whole number from 1 to 4,096, not 0"),
        ({"d_model": True}, "model.d_model is a whole number"),
        ({"d_model": 64.0}, "model.d_model is a whole number"),
        ({"tied": 1}, "model.tied is true or false, not 1"),
        ({"dropout": float("inf")}, "model.dropout is a number, not inf"),
        ({"hidden_size": 64}, "there is no 'model.hidden_size'"),
    ],
)
def test_values_of_another_type_or_range_are_refused(sizes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_sizes("gpt2", sizes)


def test_what_may_be_missing_passes() -> None:
    check_sizes("gpt2", {"max_positions": None, "d_model": 64, "unknown": object()})
    check_sizes("no preset", {"n_layers": 0})
