from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.recipes.overrides import apply, as_setting, parse


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


def test_a_setting_that_would_drop_an_earlier_one_is_refused() -> None:
    tree = {"model": {"preset": "gpt"}}
    assert apply(tree, ["model=llama", "model.d_model=8"]) == {"model": {"kind": "llama", "d_model": 8}}
    with pytest.raises(ValueError, match=r"model replaces all of model, and with it model\.d_model, given before"):
        apply(tree, ["model.d_model=8", "model=llama"])
    with pytest.raises(
        ValueError, match=r"and with it model\.decoder\.position, given before; give model\.replace first"
    ):
        apply(tree, ["model.decoder.position=alibi", "model.replace={}"])


WORDS = st.text(st.characters(exclude_categories=("C", "Z")))


@given(st.recursive(st.none() | st.booleans() | st.integers() | WORDS, lambda of: st.lists(of, max_size=2)))
def test_a_value_written_as_a_setting_is_read_back(value: object) -> None:
    assert parse(as_setting("a.b", value)) == ("a.b", value)


def test_nothing_can_stand_below_a_number() -> None:
    with pytest.raises(ValueError, match="has no keys"):
        apply({"seed": 1}, ["seed.x=2"])
