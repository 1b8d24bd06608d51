"""Configuration keys: claimed, harmless or refused by name; nothing is dropped silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qkv.io.families import FAMILIES, family_of, preset
from qkv.io.families.rope import Rope
from qkv.io.hub.equivalent import equivalent_spec
from qkv.io.hub.family import difference
from qkv.io.hub.keys import ANY, Key, check_claimed, filled
from qkv.nn.positions.bias import ALiBi
from qkv.nn.positions.rope_scaling import Llama3Scaling, LongRoPE
from qkv.nn.positions.rotary import Rotary
from qkv.runs.recipes.recipe import Recipe

LLAMA = {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 9}


@pytest.mark.parametrize(
    "family, config, said",
    [
        ("llama", {**LLAMA, "hiden_size": 3}, "the key 'hiden_size' .* is not known here; did you mean 'hidden_size'"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True is not built here"),
        ("gpt2", {"activation_function": "mish"}, "activation_function 'mish' is not built here; .*gelu_new"),
        ("gpt2", {"architectures": ["GPT2DoubleHeadsModel"]}, "class .GPT2DoubleHeadsModel. of 'gpt2' is not built"),
        ("gpt2", {"is_encoder_decoder": True}, "is_encoder_decoder=True is not built here"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ("llama", {**LLAMA, "rope_scaling": {"type": "magic"}}, "rope_type 'magic' is not built here"),
        ("llama", {**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.0, "extra": 1}}, "rope_scaling: .*extra"),
        ("qwen2", {"layer_types": ["full_attention"]}, "layer_types .* for each of 32 layers"),
    ],
)
def test_what_means_something_else_is_named(family: str, config: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        FAMILIES[family].spec(config)


def test_nothing_said_is_the_originals_default() -> None:
    spec = FAMILIES["gpt2"].spec({"model_type": "gpt2", "unheard_of": None})
    assert spec == preset("gpt2")


def test_old_and_new_spellings_of_rotary_parameters() -> None:
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 99}
    new = {**LLAMA, "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **scaling}}
    old = {**LLAMA, "rope_theta": 5e5, "rope_scaling": {"type": "llama3", **scaling}}
    spec = FAMILIES["llama"].spec(new)
    assert spec == FAMILIES["llama"].spec(old) and spec.decoder is not None
    assert spec.decoder.position == Rotary(base=5e5, scaling=Llama3Scaling(factor=8.0, original_max_positions=99))
    assert FAMILIES["llama"].config(spec)["rope_parameters"] == new["rope_parameters"]


def test_longropes_factor_matches_the_contexts() -> None:
    given = {"type": "su", "short_factor": [1.0, 1.0], "long_factor": [2.0, 3.0]}
    config = {"rope_scaling": given, "max_position_embeddings": 64, "original_max_position_embeddings": 16}
    field = Rope()
    position = field.read(filled(config, (field, Key("max_position_embeddings", "max_positions", 1))))
    assert isinstance(position.scaling, LongRoPE) and position.scaling.factor == 4.0


def test_a_context_too_short_for_longrope_is_named_as_the_configuration_has_it() -> None:
    given = {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}
    for config, key in (
        ({"max_position_embeddings": 1}, "max_position_embeddings"),
        ({"max_position_embeddings": 8, "original_max_position_embeddings": 1}, "original_max_position_embeddings"),
    ):
        field, keys = Rope(), Key("max_position_embeddings", "max_positions", 1)
        with pytest.raises(ValueError, match=f"rope_scaling: LongRoPE: {key}: input should be greater than 1"):
            field.read(filled({"rope_scaling": given, **config}, (field, keys)))


def test_anything_goes_for_what_changes_no_output() -> None:
    check_claimed({"_name_or_path": "x", "use_cache": False, "mine": 3}, (), {"mine": ANY})


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"decoder.position": ALiBi()}, "gpt2 comes nearest: decoder.position is learned there and alibi here"),
        (
            {"decoder.blocks.*.attention.qk_norm": "rmsnorm"},
            "blocks.0-1.attention.qk_norm is none there and rmsnorm here",
        ),
        ({"decoder.blocks.1.attention.n_heads": 2}, "decoder.blocks.1.attention.n_heads is 4 there and 2 here"),
    ],
)
def test_a_spec_of_no_family_is_told_what_stands_in_the_way(changes: dict[str, Any], said: str) -> None:
    spec = preset("gpt2", n_layers=2, d_model=16, n_heads=4, vocab_size=9).replace(changes)
    with pytest.raises(ValueError, match="no Hub family matches this model; ") as error:
        family_of(spec)
    assert said in str(error.value)
    with pytest.raises(ValueError, match="gpt2 comes nearest: decoder"):
        family_of(spec, first="gpt2")


def test_what_changes_no_output_is_no_difference() -> None:
    spec = preset("gpt2", n_layers=2).replace(
        {"decoder.blocks.*.attention.backend": "sdpa", "initialization": "glorot", "decoder.blocks.0.dropout": 0.5}
    )
    assert family_of(spec.replace({"decoder.blocks.*.attention.n_kv_heads": 12})).model_type == "gpt2"


@pytest.mark.parametrize("name", ["gpt2", "starcoder", "pythia-160m", "bloom-560m", "llama-3-8b", "mistral-7b"])
def test_a_published_size_is_its_configuration(name: str) -> None:
    spec = preset(name)
    family = family_of(spec)
    assert not difference(family.spec(family.config(spec)), spec, beside=frozenset())


EXPORTS = {  # a recipe, and what makes a model of a Hub family of it
    "lm": ("gpt2", ""),
    "classify": ("bert", ""),
    "bert": ("bert", "model.position=learned"),
    "translate": ("pegasus", ""),
    "localise": ("pegasus", ""),
    "vit": ("vit", "head.pool=token"),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_which_recipes_export_and_what_makes_the_others(name: str) -> None:
    """As docs/hub.md says."""
    family, override = EXPORTS[name]
    page = (Path(__file__).parents[3] / "docs" / "hub.md").read_text()
    assert f"| {name} | `{family}` | {f'`{override}`' if override else 'none'} |" in page

    def spec(*settings: str) -> Any:
        recipe = Recipe.load(name, settings)
        model = recipe.spec() if recipe.head is None else recipe.spec().replace(head=recipe.head)
        return equivalent_spec(model) or model

    if override:
        with pytest.raises(ValueError, match=f"no Hub family matches this model; {family} "):
            family_of(spec())
    assert family_of(spec(*[override] if override else [])).model_type == family


def test_the_nearest_family_is_that_with_the_fewest_obstacles() -> None:
    with pytest.raises(ValueError) as error:
        family_of(Recipe.load("bert").spec())
    assert str(error.value).endswith(
        "; bert comes nearest: encoder.position is learned there and rotary here; a model trained with "
        "model.replace='{encoder.position: {kind: learned, offset: 0}}' can be saved"
    )


def test_of_families_equally_near_one_that_differs_only_in_the_head_is_named() -> None:
    recipe = Recipe.load("classify", ["model.preset=distilbert-base"])
    assert recipe.head is not None
    with pytest.raises(ValueError) as error:
        family_of(recipe.spec().replace(head=recipe.head.replace(labels=2)))
    assert str(error.value).endswith(
        "; distilbert comes nearest: head.activation is relu there and tanh here; a model trained with "
        "head.activation=relu can be saved"
    )
