"""Modules from outside qkv are imported after one question, whose answer is remembered."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from qkv.cli.consent import ask, remember


@pytest.fixture(autouse=True)
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which answers are remembered."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # no terminal
    return tmp_path / "config" / "qkv" / "imports.json"


def test_without_a_terminal_the_options_that_allow_it_are_named(tmp_path: Path, answers: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    with pytest.raises(
        ValueError, match=r"mine.yaml imports parts, more.py, code from outside qkv; allow it with"
    ) as error:
        ask(["parts", "more.py"], str(recipe))
    assert "qkv --import parts --import more.py …, or qkv --yes …" in str(error.value)
    assert not answers.exists()


def test_what_was_allowed_is_not_asked_again(tmp_path: Path, answers: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    remember(recipe, ["parts"])
    ask(["parts"], str(recipe))
    for where, names in ((recipe, ["parts", "more.py"]), (tmp_path / "other.yaml", ["parts"])):
        with pytest.raises(ValueError, match="code from outside qkv"):
            ask(names, str(where))
    remember(recipe, ["more.py"])
    ask(["parts", "more.py"], str(recipe))
    assert json.loads(answers.read_text()) == {str(recipe.resolve()): ["more.py", "parts"]}


def test_a_damaged_file_of_answers_allows_nothing(tmp_path: Path, answers: Path) -> None:
    answers.parent.mkdir(parents=True)
    for content in ("{", "[]"):
        answers.write_text(content)
        with pytest.raises(ValueError, match="code from outside qkv"):
            ask(["parts"], str(tmp_path / "mine.yaml"))


def test_the_answer_in_a_terminal_decides(tmp_path: Path, answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    recipe = str(tmp_path / "mine.yaml")
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    with pytest.raises(ValueError, match=r"nothing was imported, but .* needs parts"):
        ask(["parts"], recipe)
    assert not answers.exists()
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    ask(["parts"], recipe)
    assert answers.exists()
