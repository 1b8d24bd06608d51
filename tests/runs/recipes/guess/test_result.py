"""Settings of a guess: each is read back as the value that it was."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from qkv.runs.recipes.guess.result import Guess, setting


@pytest.mark.parametrize("value", ["text", "true", "12", "1e3", "~", "a: b", "- x", "# no", "[x]", " ", "", "é, 'q'"])
def test_a_text_is_read_back_as_a_text(value: str) -> None:
    key, _, written = setting("data.text", value).partition("=")
    assert key == "data.text" and yaml.safe_load(written) == value


@pytest.mark.parametrize(
    ("value", "written"),
    [(12, "k=12"), ([16, 24], "k=[16,24]"), (["a", "b c"], "k=[a,b c]"), ("plain", "k=plain"), (Path("a/b"), "k=a/b")],
)
def test_what_needs_no_quotes_has_none(value: Any, written: str) -> None:
    assert setting("k", value) == written


@pytest.mark.parametrize(
    ("value", "written"), [("12", 'k="12"'), ("true", 'k="true"'), (["1", "2"], 'k=["1", "2"]'), ("é: x", 'k="é: x"')]
)
def test_what_would_be_another_value_is_quoted(value: Any, written: str) -> None:
    assert setting("k", value) == written


def test_a_shell_splits_the_command_into_its_settings() -> None:
    guess = Guess("classify", ("data.path=a b.csv", 'data.text="it\'s"'), ())
    assert shlex.split(guess.command(["out=$x"])) == [
        "qkv", "train", "classify", "data.path=a b.csv", 'data.text="it\'s"', "out=$x"
    ]  # fmt: skip
