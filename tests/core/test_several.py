"""Arguments that are one item or several: what is accepted, and what a wrong one is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas
import pytest
import torch

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


@several.worded
def counted_words(
    texts: Sequence[str],
    size: int = 1,
    how: Literal["a", "b"] = "a",
    weights: Mapping[str, float] | None = None,
    device: torch.device | str | None = None,
) -> float:
    """A public function that fails inside if an argument is of a wrong type."""
    torch.zeros(size, device=device)
    return sum(len(text.split()) * (weights or {}).get(how, 1.0) for text in texts)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"texts": 3}, "texts of counted_words has to be a list of strings, not 3, an int"),
        ({"texts": ["a", 3]}, "texts of counted_words has to be a list of strings, not"),
        ({"texts": torch.zeros(2)}, "texts of counted_words has to be a list of strings, not tensor"),
        ({"size": 1.5}, "size of counted_words has to be a whole number, not 1.5, a float"),
        ({"size": -1}, "size of counted_words is -1, which is out of range: "),
        ({"size": 10**30}, "size of counted_words is 10*, which is out of range"),
        ({"how": ["a"], "weights": {"a": 1}}, r"how of counted_words has to be 'a' or 'b', not \['a'\], a list"),
        ({"weights": [3]}, r"weights of counted_words has to be a dictionary or None, not \[3\], a list"),
        ({"device": 2.5}, "device of counted_words has to be a device or a string or None, not 2.5, a float"),
        ({"device": "tpux"}, "device of counted_words is 'tpux'; give a device, such as 'cpu' or 'cuda'"),
    ],
)
def test_an_argument_that_does_not_fit_its_annotation_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        counted_words(**{"texts": ["a b"], **given})


def test_other_errors_stay_as_they_are() -> None:
    @several.worded
    def fails(how: str) -> None:
        if how == "meant":
            raise ValueError("mine")
        raise KeyError(how)

    with pytest.raises(KeyError):
        fails("bug")
    with pytest.raises(ValueError, match=r"^mine$"):
        fails("meant")
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        fails()  # type: ignore[call-arg]
    assert counted_words(["a b", "c"], 1, "a", {"a": 2.0}) == 6.0
    assert counted_words.__name__ == "counted_words"


def test_lists_that_belong_together_have_equal_lengths() -> None:
    several.beside(outputs=["a"], references=["b"])
    with pytest.raises(ValueError, match="belong together one by one, and there are 1 outputs and 2 references"):
        several.beside(outputs=["a"], references=["b", "c"])
    with pytest.raises(ValueError, match="there are no outputs and references; give at least one of each"):
        several.beside(outputs=[], references=[])
