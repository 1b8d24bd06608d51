"""The separator and the quotation marks of a table: by name, as a file declares them, and as its lines show them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pandas
import pytest
from pydantic import TypeAdapter, ValidationError

from qkv.data.files.csv_dialect import Separator, declared, detected_separator, fit, named
from qkv.data.files.csv_tsv import Cells
from qkv.data.files.lines import Lines
from qkv.data.readers.labelled_text import Labelled
from qkv.runs.recipes.guess import guess
from qkv.runs.recipes.recipe import Recipe

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


TEXTS = [f'a dog, and it\'s "old" {i}' if i % 3 else f"a cat sees {i}" for i in range(30)]
ROWS = [["text", "label"], *([text, "pos" if i % 2 else "neg"] for i, text in enumerate(TEXTS))]
WRITERS: dict[str, dict[str, Any]] = {
    r'data.escape="\\"': {"escapechar": "\\", "doublequote": False},
    'data.quote="\'"': {"quotechar": "'", "quoting": csv.QUOTE_ALL},
    r"""data.quote="'" data.escape="\\" """: {
        "quotechar": "'",
        "escapechar": "\\",
        "doublequote": False,
        "quoting": csv.QUOTE_ALL,
    },
}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("settings", WRITERS)
def test_other_quotes_are_found_told_and_read_as_pandas_reads_them(
    tmp_path: Path, settings: str, delimiter: str
) -> None:
    path = tmp_path / ("t.tsv" if delimiter == "\t" else "t.csv")
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter, **WRITERS[settings]).writerows(ROWS)
    found = guess(path)
    assert set(settings.split()) <= set(found.settings)
    assert "quoted by" in " ".join(found.seen)
    source = Labelled(
        **{k: v for k, v in Recipe.load(found.recipe, found.settings).data.to_dict().items() if k != "kind"}
    )
    table = source.open("train")
    options = {name: WRITERS[settings][name] for name in ("quotechar", "escapechar") if name in WRITERS[settings]}
    frame = pandas.read_csv(path, sep=delimiter, **options)
    read = [table[i] for i in range(len(table))]
    assert [(one["text"], one["label"]) for one in read] == [*frame.itertuples(index=False, name=None)]


def test_the_error_of_an_invalid_row_says_how_to_read_the_file_if_that_is_certain(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, escapechar="\\", doublequote=False).writerows(ROWS)
    with pytest.raises(ValueError, match=r"line 3, is not valid CSV: .*data.escape=.* reads them"):
        Cells(path, "csv", "utf-8")
    path.write_text('text,label\n"a dog,pos\n' + "a cat,neg\n" * 20)
    with pytest.raises(
        ValueError, match='line 2, is not valid CSV: unexpected end of data; qkv reads cells in " marks'
    ):
        Cells(path, "csv", "utf-8")


def test_skipping_is_not_advised_where_it_leaves_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text,label\n" + "a, b,pos\n" * 20)
    assert "on_error" not in " ".join(Cells(path, "csv", "utf-8").faults(("text", "label")))
    path.write_text("text,label\n" + "a b,pos\n" * 20 + "a, b,pos\n")
    assert "data.on_error=skip" in " ".join(Cells(path, "csv", "utf-8").faults(("text", "label")))


def test_rows_between_marks_that_were_not_closed_and_spaces_before_marks_are_told(tmp_path: Path) -> None:
    lines = [f"a dog {i},pos" for i in range(20)]
    lines[4], lines[9] = '"a dog,pos', 'the end",neg'
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["text,label", *lines]))
    cells = Cells(path, "csv", "utf-8")
    assert "lines 6 to 11 of 't.csv' are one row" in " ".join(cells.odd(("text", "label")))
    path.write_text('"text", "label"\n' + '"a dog", "pos"\n' * 5)
    assert "5 rows of the first 6 of 't.csv' with a space before a quotation mark (line 2, 3, 4, 5, 6)" in " ".join(
        Cells(path, "csv", "utf-8").odd(("text", '"label"'))
    )


@pytest.mark.parametrize("mark", ["ab", "x", " ", ""])
def test_a_mark_is_one_character(mark: str) -> None:
    with pytest.raises(ValueError, match="a quotation mark or an escape is one character"):
        Labelled(path="x.csv", quote=mark)
