"""The separator of a table: by name, as a file declares it, and as its lines show it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from qkv.data.files.lines import Lines
from qkv.data.files.separators import Separator, declared, detected_separator, fit, named

NAMED = TypeAdapter(Separator)


@pytest.mark.parametrize(
    ("given", "separator"), [("comma", ","), ("tab", "\t"), ("\\t", "\t"), ("|", "|"), ("space", " ")]
)
def test_a_separator_is_a_character_or_its_name(given: str, separator: str) -> None:
    assert NAMED.validate_python(given) == separator


@pytest.mark.parametrize("given", ["", "ab", "x", ".", '"', "\n"])
def test_other_texts_are_no_separators(given: str) -> None:
    with pytest.raises(ValidationError, match="a separator of cells is one character"):
        NAMED.validate_python(given)


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("a,b\nc,d\n", ","),
        ("name;score\nfirst;1,5\nsecond;2,5\n", ";"),
        ("a\tb, c\nd\te\n", "\t"),
        ("x|y\nz|w\n", "|"),
        ("one cell\nanother\n", ","),
        ("", ","),
    ],
)
def test_the_separator_divides_most_lines_alike(text: str, separator: str) -> None:
    assert detected_separator(text) == separator


def test_how_well_a_separator_fits() -> None:
    """Two of three lines have two cells, and two of the five cells are numbers."""
    assert fit(["a,1", "b,2", "c"], ",") == (2 / 3, 2 / 5)
    assert fit(["a", "b"], ",") == (0.0, 0.0)


def test_a_first_line_declares_it_as_in_excel(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    for line, separator in (("sep=;", ";"), ('"sep=|"', "|"), ("sep=x", None), ("separate", None)):
        path.write_text(f"{line}\na;b\n")
        assert declared(Lines(path)) == separator
        path.unlink()


def test_a_separator_is_named_in_the_plural() -> None:
    assert (named(","), named("\t"), named("^")) == ("commas", "tabs", "'^'")
