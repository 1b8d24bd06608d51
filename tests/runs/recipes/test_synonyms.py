from __future__ import annotations

import inspect

import pytest

from qkv.cli import train as command
from qkv.io.families import PRESETS
from qkv.runs.recipes.keys import keys
from qkv.runs.recipes.packaged import packaged
from qkv.runs.recipes.recipe import Recipe, tree
from qkv.runs.recipes.sizes import recipe_of_preset, sizes_of
from qkv.runs.recipes.synonyms import _REMARKS, OPTIONS, SYNONYMS, elsewhere

PLACES = sorted({*SYNONYMS.values(), *_REMARKS})


@pytest.mark.parametrize("place", PLACES)
def test_every_place_that_is_named_exists(place: str) -> None:
    *path, last = place.split(".")
    recipe = "translate" if (path == ["data"] and last in ("source", "target")) or path == ["objective"] else "lm"
    if path == ["model"] and last != "preset":
        assert last in sizes_of("gpt")
    elif place != "model.preset":
        data = tree(recipe)
        if path == ["training", "schedule"]:
            data["training"]["schedule"] = {"kind": "cosine"}
        assert place in set(keys(data, path, Recipe))


@pytest.mark.parametrize("option", sorted(set(OPTIONS.values())))
def test_every_option_that_is_named_exists(option: str) -> None:
    assert option.removeprefix("--") in inspect.signature(command.train).parameters


def test_no_name_is_both_ours_and_a_synonym_of_another_in_its_place() -> None:
    whole = set(Recipe.model_fields) | {key.rpartition(".")[2] for key in keys(tree("lm"), ["training"], Recipe)}
    assert not whole & (SYNONYMS.keys() | OPTIONS.keys())


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("training.lr=1e-3", "there is no 'training.lr'; did you mean 'training.optimizer.lr'?"),
        ("lr=1e-3", "did you mean 'training.optimizer.lr'?"),
        ("training.learning_rate=1e-3", "it is training.optimizer.lr here"),
        ("training.epochs=3", "it is training.max_epochs here"),
        ("batch_size=3", "it is batching.tokens here (counted in tokens"),
        ("training.per_device_train_batch_size=3", "it is batching.tokens here"),
        ("training.warmup_steps=3", "it is training.schedule.warmup here (in steps)"),
        ("model.hidden_size=64", "there is no 'model.hidden_size'; it is model.d_model here"),
        ("model.n_layer=6", "it is model.n_layers here"),
        ("block_size=128", "it is batching.context here"),
        ("training.output_dir=x", "it is the option --out of `qkv train`"),
        ("max_steps=3", "did you mean 'training.max_steps'?"),
        ("warmup=3", "did you mean 'training.schedule.warmup'?"),
        ("training.num_beams=3", "did you mean 'evaluation.num_beams' or 'generation.num_beams'?"),
    ],
)
def test_a_name_of_another_tool_is_met_with_ours(setting: str, said: str) -> None:
    with pytest.raises(ValueError) as error:
        Recipe.load("lm", [setting]).model.spec(100)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_the_advice_works_when_followed() -> None:
    assert elsewhere("Num-Train-Epochs") == "it is training.max_epochs here"
    assert elsewhere("no_such_thing") is None
    for name, place in SYNONYMS.items():
        assert name != place.rpartition(".")[2], name
    assert Recipe.load("lm", ["training.optimizer.betas=[0.9, 0.95]", "training.max_epochs=3"])


@pytest.mark.filterwarnings("ignore")
def test_a_preset_is_led_to_a_recipe_that_trains_it() -> None:
    with pytest.raises(ValueError, match=r"gpt2 is a preset, a model without data, .*`qkv train lm model.preset=gpt2`"):
        Recipe.load("gpt2")
    for name in {*PRESETS} - {*packaged()} - {name for name in PRESETS if name.startswith("whisper")}:
        advice = recipe_of_preset(name)
        assert advice is not None
        recipe, setting = advice.rpartition("`qkv train ")[2].rstrip("`").split()
        assert Recipe.load(recipe, [setting]).spec().n_layers, name
    assert recipe_of_preset("no-such-preset") is None
