"""The table of synonyms has every usual option of other libraries."""

from __future__ import annotations

import inspect

import pytest
from other_options import LISTS, TRAINING

import qkv
from qkv.core.synonyms import elsewhere
from qkv.runs.recipes.keys import keys
from qkv.runs.recipes.recipe import Recipe, tree
from qkv.runs.recipes.sizes import sizes_of


def ours() -> set[str]:
    """The names that qkv has too, as settings, sizes, keywords or options."""
    whole = {key.rpartition(".")[2] for part in Recipe.model_fields for key in keys(tree("lm"), [part], Recipe)}
    sizes = {name for preset in ("gpt", "t5-small", "bart-base", "vit-base-16") for name in sizes_of(preset)}
    called = {
        name
        for one in (qkv.load, qkv.train, qkv.TransformerModel.forward)
        for name in inspect.signature(one).parameters
    }
    return whole | sizes | called | set(Recipe.model_fields) | set(qkv.Generation.model_fields)


def test_every_usual_option_of_other_libraries_is_ours_or_told() -> None:
    mine = ours()
    missing = [name for names in LISTS for name in names.split() if name not in mine and elsewhere(name) is None]
    assert not missing


@pytest.mark.slow
def test_the_lists_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    named = set(vars(transformers.GenerationConfig())) - {"_from_model_config", "transformers_version"}
    mine = ours()
    assert not [name for name in named | set(TRAINING.split()) if name not in mine and elsewhere(name) is None]
    fields = transformers.TrainingArguments.__dataclass_fields__
    assert not [name for name in fields if name not in mine and elsewhere(name) is None]
