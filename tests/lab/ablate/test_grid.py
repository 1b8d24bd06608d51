"""Axes of a study: how they are read, combined, described and named as folders."""

from __future__ import annotations

import pytest

from qkv.lab.ablate.grid import GridAxis, folders, grid, labels, one_at_a_time, split_values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1e-3,3e-3", ["1e-3", "3e-3"]),
        ("[1, 2], [3,4]", ["[1, 2]", "[3,4]"]),
        ("{kind: a, size: [1,2]},none", ["{kind: a, size: [1,2]}", "none"]),
        ("'a,b',\"c]\",d", ["'a,b'", '"c]"', "d"]),
        ("", [""]),
    ],
)
def test_commas_in_brackets_and_quotes_belong_to_a_value(text: str, values: list[str]) -> None:
    assert split_values(text) == values


def test_an_axis_is_a_key_and_its_values() -> None:
    assert GridAxis.parse(" a.b =1,2").settings() == ["a.b=1", "a.b=2"]
    assert GridAxis.of("a", [1, "x", [2, None]]).settings() == ["a=1", "a=x", "a=[2, null]"]


@pytest.mark.parametrize(
    ("text", "said"),
    [("a", "is not an axis"), ("=1", "is not an axis"), ("a..b=1", "is not an axis"), ("a=1,", "is not an axis")],
)
def test_what_is_no_axis_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        GridAxis.parse(text)


def test_a_value_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="--vary a has the value 1 twice"):
        GridAxis.parse("a=1,2,1")
    with pytest.raises(ValueError, match=r"ablate\.vary\.a is a list of values, not 3"):
        GridAxis.of("a", 3)


def test_a_grid_has_the_last_axis_vary_fastest_and_a_sample_keeps_its_order() -> None:
    axes = [GridAxis("a", ("1", "2")), GridAxis("b", ("x", "y", "z"))]
    every = [("a=1", "b=x"), ("a=1", "b=y"), ("a=1", "b=z"), ("a=2", "b=x"), ("a=2", "b=y"), ("a=2", "b=z")]
    assert grid(axes) == every and grid([]) == []
    some = grid(axes, 4)
    assert len(set(some)) == 4 and some == sorted(some, key=every.index) and grid(axes, 4) == some
    assert one_at_a_time(axes) == [("a=1",), ("a=2",), ("b=x",), ("b=y",), ("b=z",)]
    with pytest.raises(ValueError, match="--random 6 is not less than the 6 variants of the grid"):
        grid(axes, 6)


def test_a_label_has_as_much_of_a_key_as_tells_it_from_the_others() -> None:
    variants = [("model.encoder.norm=rms",), ("model.decoder.norm=rms", "training.lr=1")]
    assert labels(variants) == ["encoder.norm=rms", "decoder.norm=rms, lr=1"]


def test_a_key_at_the_end_of_another_is_labelled_in_full() -> None:
    assert labels([("head=none",), ("model.head=none",)]) == ["head=none", "model.head=none"]


def test_folders_are_plain_short_and_different() -> None:
    names = ["a=[1, 2]", "a=(1, 2)", "a=<1,2>", "...", "é_1.5", "x" * 100]
    assert folders(names) == ["a-1-2", "a-1-2-2", "a-1-2-3", "variant", "é_1.5", "x" * 60]
