"""Overrides that the message of a refused export names make a model of the Hub family, in every recipe."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from qkv.io.families import family_of, preset
from qkv.io.hub.equivalent import equivalent_spec
from qkv.io.hub.overrides import changes_to
from qkv.runs.recipes.recipe import Recipe


def spec_of(name: str, *settings: str) -> Any:
    recipe = Recipe.load(name, settings)
    spec = recipe.spec() if recipe.head is None else recipe.spec().replace(head=recipe.head)
    return equivalent_spec(spec) or spec


@pytest.mark.parametrize(
    "settings", [("bert",), ("vit",), ("tag",), ("answer",), ("translate", "model.position=rotary")]
)
def test_the_overrides_that_are_named_work(settings: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"no Hub family matches this model; .* comes nearest: ") as error:
        family_of(spec_of(*settings))
    named = re.search("; a model trained with (.*) can be saved$", str(error.value))
    assert named is not None, str(error.value)
    assert family_of(spec_of(*settings, *shlex.split(named[1]))).model_type in str(error.value)


def test_every_obstacle_is_named() -> None:
    spec = preset("gpt2", n_layers=2).replace(
        {
            "decoder.position": "alibi",
            "decoder.norm": "none",
            "head.bias": True,
            "decoder.blocks.0.attention.bias": False,
            "decoder.blocks.0.feedforward.bias": False,
            "decoder.blocks.1.norm": "rmsnorm",
            "decoder.blocks.1.feedforward.gated": True,
            "decoder.embedding.scale": "sqrt",
        }
    )
    with pytest.raises(ValueError) as error:
        family_of(spec)
    message = str(error.value)
    assert "more" not in message and message.count(" there and ") >= 8


def test_another_head_is_no_override() -> None:
    with pytest.raises(ValueError) as error:
        family_of(spec_of("detect"))
    assert "head is absent there" in str(error.value) and "trained with" not in str(error.value)


def test_changes_are_of_whole_parts_and_of_all_blocks() -> None:
    target = preset("gpt2", n_layers=2)
    changes = {"decoder.position": "alibi", "decoder.blocks.*.attention.bias": False, "decoder.blocks.0.dropout": 0.7}
    found = changes_to(target.replace(changes), target)
    assert found == {
        "decoder.position": {"kind": "learned", "offset": 0},
        "decoder.blocks.*.attention.bias": True,
    } | {key: value for key, value in found.items() if key.endswith(("out_bias", "key_bias"))}
