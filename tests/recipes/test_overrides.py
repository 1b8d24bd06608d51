from __future__ import annotations

import pytest

from qkv.recipes.overrides import apply, parse


def test_values_are_yaml() -> None:
    assert parse("training.max_steps=100") == ("training.max_steps", 100)
    assert parse("data.languages=[de, no]") == ("data.languages", ["de", "no"])
    assert parse("a={kind: cosine, warmup: 3}") == ("a", {"kind": "cosine", "warmup": 3})
    assert parse("data.path=a=b.txt") == ("data.path", "a=b.txt")
    assert parse("a=") == ("a", None)


@pytest.mark.parametrize("text", ["steps", "=3", "a..b=3", ".a=1", ""])
def test_what_is_no_setting_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="key=value"):
        parse(text)


def test_apply_copies_and_opens_short_forms() -> None:
    tree = {"training": {"schedule": "cosine"}, "seed": 1}
    changed = apply(tree, ["training.schedule.warmup=3", "seed=2", "data.path=x"])
    assert changed == {
        "training": {"schedule": {"kind": "cosine", "warmup": 3}},
        "seed": 2,
        "data": {"path": "x"},
    }
    assert tree == {"training": {"schedule": "cosine"}, "seed": 1}


def test_paths_into_the_model_go_whole_under_replace() -> None:
    tree = {"model": {"preset": "gpt"}}
    wanted = {"model": {"preset": "gpt", "replace": {"decoder.position": "alibi"}}}
    assert apply(tree, ["model.decoder.position=alibi"]) == wanted
    assert apply(tree, ["model.replace.decoder.position=alibi"]) == wanted
    assert apply(tree, ["model.d_model=8"]) == {"model": {"preset": "gpt", "d_model": 8}}


def test_nothing_can_stand_below_a_number() -> None:
    with pytest.raises(ValueError, match="has no keys"):
        apply({"seed": 1}, ["seed.x=2"])
