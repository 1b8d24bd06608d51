"""What a column of a table may hold."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from guessable_files import texts, write

from qkv.runs.recipes.guess import guess
from qkv.runs.recipes.recipe import Recipe


@pytest.mark.parametrize(
    "name", ["true", "null", "12", "a: b", "[x]", "a, b", "#", "it's", 'say ""x""', "- x", "~", "1e3"]
)
def test_a_column_of_any_name_is_read_back(name: str, tmp_path: Path) -> None:
    rows = (f"{text},{'good' if i % 3 else 'bad'}\n" for i, text in enumerate(texts(200)))
    path = write(tmp_path / "x.csv", f'"{name}",label\n' + "".join(rows))
    command = shlex.split(guess(path, settings=["data.header=true"]).command())
    data: Any = Recipe.load(command[2], command[3:]).data
    assert data.text == name.replace('""', '"')
    assert {example["label"] for example in data.examples("train")} == {"good", "bad"}


def test_commas_that_are_read_as_decimal_points_are_told(tmp_path: Path) -> None:
    def seen(cell: str) -> str:
        rows = "".join(f"{text};{i % 9 + 1},{cell}\n" for i, text in enumerate(texts(60)))
        return "\n".join(guess(write(tmp_path / "x.csv", "text;score\n" + rows)).seen)

    assert "commas in score are decimal points: 1,25 is 1.25\n" in seen("25")
    assert "1,250 is 1.250; if they separate thousands" in seen("250")


def test_a_column_of_one_class_is_told(tmp_path: Path) -> None:
    rows = "".join(f"{text},good\n" for text in texts(60))
    found = guess(write(tmp_path / "x.csv", "text,label\n" + rows))
    assert found.recipe == "lm" and "label is not used: its only class is 'good'" in found.seen


def test_numbers_with_decimal_commas_are_scores(tmp_path: Path) -> None:
    rows = "".join(f"this is the text {i};{i % 7},{i % 10}\n" for i in range(80))
    found = guess(write(tmp_path / "a.csv", f"text;score\n{rows}"))
    assert {"task=regress", "data.score=score", "data.decimal=','"} <= set(found.settings)
    source = Recipe.load(found.recipe, found.settings).data
    assert all(float(example["score"]) < 7 for example in source.examples("train"))
