"""Arguments that are one item or several: what is accepted, and what a wrong one is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from qkv.core import several


@pytest.mark.parametrize(
    "value", [["a", "bc"], ("a", "bc"), np.array(["a", "bc"]), pandas.Series(["a", "bc"]), iter(["a", "bc"])]
)
def test_texts_come_from_any_sequence(value: Any) -> None:
    assert several.texts(value) == ["a", "bc"]


def test_a_string_is_one_text_and_a_tuple_one_input() -> None:
    assert several.texts("abc") == ["abc"] and several.texts([]) == []
    assert several.paths(Path("a") / "b") == ["a/b"] and several.paths([Path("a"), "b"]) == ["a", "b"]
    assert several.inputs(["a", ("b", "c"), Path("d")]) == ["a", ("b", "c"), "d"]
    assert several.inputs(Path("d")) == ["d"]
    assert several.inputs(("a", "b")) == ["a", "b"]  # a tuple alone is several inputs


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: several.texts(3), "texts are a text or a list, not 3, an int"),
        (lambda: several.texts(None, "prompts"), "prompts are a text or a list, not None"),
        (lambda: several.texts({"a": 1}), "texts are a text or a list, not {'a': 1}, a dict"),
        (lambda: several.texts(b"ab"), "texts are a text or a list, not b'ab', a bytes"),
        (lambda: several.texts(["a", 2]), "and number 2 of them is 2, an int"),
        (lambda: several.inputs([("a", 3)]), "and number 2 of them is 3, an int"),
        (lambda: several.text(["a"]), "the text is a string, not"),
        (lambda: several.path(""), "the path is a string or a path, not '', a str"),
        (lambda: several.path("a\0b"), "the path is a string or a path"),
        (lambda: several.numbers(0, lr=float("nan")), "lr must be a number of at least 0, not nan"),
        (lambda: several.numbers(0.5, x=0.25), "x must be a number of at least 0.5, not 0.25"),
        (lambda: several.numbers(0, x=True), "x must be a number of at least 0, not True, a bool"),
        (lambda: several.whole_numbers(1, n=2.0), "n must be a whole number of at least 1, not 2.0, a float"),
        (lambda: several.flags(on=1), "on is True or False, not 1, an int"),
        (lambda: several.instance(3, dict, "it", "f()"), r"it has to be of type dict, as f\(\) makes one, not 3"),
    ],
)
def test_what_is_wrong_is_named_with_its_type(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()


def test_numbers_that_are_right_or_missing_pass() -> None:
    several.numbers(0, a=None, b=0, c=np.float32(1.5))
    several.whole_numbers(1, a=None, b=np.int64(1))
    several.flags(a=True, b=False)
    assert several.path(Path("a")) == Path("a")
