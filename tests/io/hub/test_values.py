"""Values of configurations: what fits, and what a wrong one is told."""

from __future__ import annotations

import math
from typing import Any

import pytest

from qkv.io.hub.values import Either, Flag, List, Maybe, ObjectKind, Real, ValueKind, Whole, check_values


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Whole(1, 8), [1, 8], [0, 9, True, 3.0, "3", None]),
        (Real(0, 1), [0, 1, 0.5], [-0.1, 1.1, math.nan, True, "0"]),
        (Real(0, 1, above=True, below=True), [0.5], [0, 1, 0.0, 1.0]),
        (Real(-math.inf, math.inf, above=True, below=True), [1e300, -5], [math.inf, -math.inf, math.nan]),
        (Flag(), [True, False], [0, 1, "true", None]),
        (Maybe(Whole()), [None, 3], [-1, "x"]),
        (List(Whole(), 3, 1), [[1], (1, 2, 3)], [[], [1, 2, 3, 4], [1, -1], "abc"]),
        (Either(Whole(), List(Whole(), 2)), [3, [1, 2]], [[1, 2, 3], "x"]),
        (ObjectKind(most=1), [{}, {"a": 1}], [{"a": 1, "b": 2}, [], None]),
    ],
    ids=str,
)
def test_what_fits(kind: ValueKind, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not kind.fits(value)] == []
    assert [value for value in bad if kind.fits(value)] == []


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"hidden_size": 0}, "hidden_size must be an integer from 1 to 1048576, not 0"),
        ({"layer_norm_eps": 0}, "layer_norm_eps must be a number above 0 to 1, not 0"),
        ({"dropout": 1.0}, "dropout must be a number from 0 and below 1, not 1.0"),
        ({"rope_scaling": {"factor": -2}}, "rope_scaling.factor must be a number above 0"),
        ({"rope_scaling": {"full_attention": {"rope_theta": 0}}}, r"rope_scaling.full_attention.rope_theta must be"),
        ({"image_size": [3, 4, 5]}, r"image_size must be .*, or a list of 2, each .*, not \[3, 4, 5\]"),
        ({"sliding_window": -1}, "sliding_window must be an integer from 0 to 1073741824, not -1"),
        ({"hidden_size": None}, "hidden_size must be an integer"),
        ({"mine": 1.5}, "mine must be an integer"),  # like its default
        ({"own": "x" * 999}, r"own must be true or false, not 'x{30,40}\.\.\.x{30,40}'$"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(config: dict[str, Any], said: str) -> None:
    defaults = dict.fromkeys(("hidden_size", "layer_norm_eps", "dropout", "image_size", "sliding_window"), 4)
    with pytest.raises(ValueError, match=said):
        check_values(config, {**defaults, "rope_scaling": None, "mine": 3, "own": False})


def test_null_is_allowed_where_it_is_the_default_and_unclaimed_keys_are_not_checked() -> None:
    config = {"hidden_size": None, "other": object(), "rope_scaling": {"factor": None}}
    check_values(config, {"hidden_size": None, "rope_scaling": None})
