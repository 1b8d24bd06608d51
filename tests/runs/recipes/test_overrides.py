from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.runs.recipes.overrides import apply, as_setting, parse, warn_of_overruled, without_replaced


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


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["a.b=1", "a.b=2"], "a.b is given twice, as 1 and as 2; the last value is used"),
        (["a.b=1", "a.b=true"], "a.b is given twice, as 1 and as True"),
        (["a.b=1", "a.b=1.0"], "a.b is given twice"),
        (["a={b: 1, c: 2}", "a.b=3"], "a.b is given twice, as 1 and as 3"),
        (["a=x", "a.kind=y"], "a.kind is given twice, as 'x' and as 'y'"),
        (
            ["a={kind: x, b: 1, c: 2}", "a=x"],
            "a is given twice, the second time without a.b=1, a.c=2; the last value is",
        ),
        (["a={b: 1, c: {d: 2}}", "a={b: 1}"], "a is given twice, the second time without a.c.d=2"),
        (["a.b={c: 1}", "a.b=null"], "a.b is given twice, the second time without a.b.c=1"),
        (["model.decoder.position=alibi", "model.replace.decoder.position=rotary"], "decoder.position is given twice"),
    ],
)
def test_of_a_setting_that_is_given_twice_the_last_value_counts_with_a_warning(settings: list[str], said: str) -> None:
    first, last = settings
    with pytest.warns(UserWarning, match=re.escape(said)):
        assert apply({}, settings) == apply(apply({}, [first]), [last])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert apply({}, [first, first]) == apply({}, [first])


def test_a_kind_does_not_drop_the_model_of_a_bare_name() -> None:
    for tree, settings in (({"model": "runs/a"}, ["model.kind=gpt2"]), ({}, ["model=runs/a", "model.kind=gpt2"])):
        with pytest.raises(ValueError, match=r"model\.kind=gpt2 would replace model=runs/a; give one of them"):
            apply(tree, settings)
    assert apply({"model": {"preset": "t5-small"}}, ["model.kind=t5"])["model"] == {"preset": "t5-small", "kind": "t5"}


def test_settings_that_are_replaced_are_left_out() -> None:
    settings = ["data.path=a", "data.kind=pairs", "model.decoder.position=alibi", "seed=1"]
    assert without_replaced(settings, ["seed=2", "data.path=b"]) == settings[1:3]
    assert without_replaced(settings, ["data={kind: text}", "model.replace={}"]) == ["seed=1"]


WORDS = st.text(st.characters(exclude_categories=("C", "Z")))


@given(st.recursive(st.none() | st.booleans() | st.integers() | WORDS, lambda of: st.lists(of, max_size=2)))
def test_a_value_written_as_a_setting_is_read_back(value: object) -> None:
    assert parse(as_setting("a.b", value)) == ("a.b", value)


def test_nothing_can_stand_below_a_number() -> None:
    with pytest.raises(ValueError, match="has no keys"):
        apply({"seed": 1}, ["seed.x=2"])


@pytest.mark.parametrize(
    ("setting", "other", "said"),
    [
        ("training.lr=1", "training.lr", "training.lr=1 is not used, because the space sets it"),
        ("training={lr: 1, n: 2}", "training.lr=3", "training.lr=1 is not used"),
        ("training.schedule.warmup=5", "training.schedule=linear", "training.schedule.warmup=5 is not used"),
        ("training.schedule=cosine", "training.schedule.kind=linear", "training.schedule.kind='cosine' is not used"),
        (
            "model.decoder.position=alibi",
            "model.replace.decoder.position=rotary",
            "decoder.position='alibi' is not used",
        ),
        ("data.path=x", "data.path=y", "data.path='x' is not used"),
        ("training.lr=1", "training.lrs=1", None),
        ("model.preset=gpt", "model.d_model=64", None),
        ("training.patience=null", "training.patience", None),
    ],
)
def test_settings_that_a_study_sets_otherwise_are_told_once(setting: str, other: str, said: str | None) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_overruled([setting], {"": [other]}, "the space")
    assert len(caught) == (said is not None) and all(said in str(one.message) for one in caught if said)


def test_settings_of_some_variants_are_told_with_their_names() -> None:
    with pytest.warns(UserWarning, match="lr=1 is not used in b, because a variant sets it"):
        warn_of_overruled(["lr=1"], {"a": ["seed=2"], "b": ["lr=3"]}, "a variant")


def test_a_setting_that_is_given_twice_is_told_once() -> None:
    with pytest.warns(UserWarning) as told:
        apply({}, ["data.text=a", "data.text=b"])
    assert len(told) == 1


@pytest.mark.parametrize("mark", [*",;|#-:&"])
def test_a_single_mark_is_itself_without_the_quotes_that_a_shell_removes(mark: str) -> None:
    assert parse(f"data.sep={mark}") == ("data.sep", mark)
    assert parse("data.sep=~") == ("data.sep", None) and parse("n=3") == ("n", 3) and parse("x=_")[1] == "_"
