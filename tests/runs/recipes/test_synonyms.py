from __future__ import annotations

import pytest

from qkv.io.families import PRESETS
from qkv.runs.recipes.packaged import packaged
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.recipes.sizes import recipe_of_preset


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("training.rates=1e-3", "there is no 'training.rates'; did you mean 'training.optimizer.rates'?"),
        ("training.warmup_ratio=0.1", "it is training.schedule.warmup here (in steps)"),
        (
            "model.resid_pdrop=0.1",
            "there is no 'model.resid_pdrop'; it is model.dropout here (it covers different layers",
        ),
        ("training.hidden_size=64", "it is model.d_model here"),
        ("batch_size=3", "it is batching.tokens here (counted in tokens"),
        ("training.per_device_train_batch_size=3", "it is batching.tokens here"),
        ("block_size=128", "it is model.max_positions or batching.context here"),
        ("training.output_dir=x", "it is the option --out of `qkv train`"),
        ("warmup=3", "did you mean 'training.schedule.warmup'?"),
        ("generation.max_length=20", "it is generation.max_new_tokens here (the prompt is not counted)"),
        ("training.num_beams=3", "did you mean 'evaluation.num_beams' or 'generation.num_beams'?"),
    ],
)
def test_a_name_of_another_tool_is_met_with_ours(setting: str, said: str) -> None:
    with pytest.raises(ValueError) as error:
        Recipe.load("lm", [setting]).model.spec(100)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_names_that_mean_the_same_are_taken() -> None:
    settings = [
        "training.lr=1e-3",
        "epochs=3",
        "warmup_steps=4",
        "model.n_layer=6",
        "model.hidden_size=64",
        "max_steps=5",
    ]
    recipe = Recipe.load("lm", [*settings, "batching.block_size=128"])
    training = recipe.training
    assert (training.optimizer.lr, training.max_epochs, training.max_steps) == (1e-3, 3, 5)
    assert (training.schedule.warmup, recipe.batching.context) == (4, 128)
    assert recipe.model.sizes["d_model"] == 64 and recipe.model.spec(100).n_layers == 6


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
