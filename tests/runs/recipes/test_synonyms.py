from __future__ import annotations

import pytest

from qkv.io.families import PRESETS
from qkv.runs.recipes.packaged import packaged
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.recipes.sizes import recipe_of_preset


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
        ("block_size=128", "it is model.max_positions or batching.context here"),
        ("training.output_dir=x", "it is the option --out of `qkv train`"),
        ("max_steps=3", "did you mean 'training.max_steps'?"),
        ("warmup=3", "did you mean 'training.schedule.warmup'?"),
        ("batching.block_size=128", "it is batching.context here"),
        ("generation.max_length=20", "it is generation.max_new_tokens here (the prompt is not counted)"),
        ("training.num_beams=3", "did you mean 'evaluation.num_beams' or 'generation.num_beams'?"),
    ],
)
def test_a_name_of_another_tool_is_met_with_ours(setting: str, said: str) -> None:
    with pytest.raises(ValueError) as error:
        Recipe.load("lm", [setting]).model.spec(100)
    assert said in str(error.value) and "\n" not in str(error.value)


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
