"""Rows that are no examples are told of every table: by its source, by the guess, in predictions and evaluations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas
import pytest

from qkv.data.media.image_files import Listed
from qkv.data.readers.jsonl import JsonLines
from qkv.data.readers.labelled_text import Labelled
from qkv.data.readers.parallel_text import Pairs
from qkv.data.readers.time_series import TimeSeries

WORDS = ["the", "red", "blue", "old", "dog", "cat", "house", "river", "sees", "likes"]
ROWS = [f"{WORDS[n % 10]} {WORDS[n // 10]} {WORDS[n % 7]},{'pos' if n % 3 else 'neg'}" for n in range(60)]


def told(path: Path, *more: str, rows: list[str] = ROWS) -> str:
    path.write_text("\n".join(("text,label", *rows, *more)) + "\n")
    return "\n".join(Labelled(path=str(path)).notes())


@pytest.mark.parametrize("last", ["Total,60", "Gesamt:,60", ",Total", "Average,0.5", "Mean,", "Итого,60"])
def test_a_row_of_totals_at_the_end_is_told(tmp_path: Path, last: str) -> None:
    assert "line 62 (" in told(tmp_path / "a.csv", last)
    assert "'a.csv' looks like a row of totals" in told(tmp_path / "a.csv", last)


def test_totals_above_other_totals_and_subtotals_are_told(tmp_path: Path) -> None:
    assert "lines 62 ('Total'), 63 ('Average') of" in told(tmp_path / "a.csv", "Total,60", "Average,3")
    rows = [*ROWS[:20], "Subtotal,20", *ROWS[20:], "Subtotal,40"]
    assert "lines 22 ('Subtotal'), 63 ('Subtotal')" in told(tmp_path / "a.csv", rows=rows)


def test_a_sum_without_a_word_is_told(tmp_path: Path) -> None:
    values = [3, 1, 4, 1, 5, 9, 2, 6]
    path = tmp_path / "a.csv"
    path.write_text("month,sales\n" + "".join(f"2020-{n + 1:02},{value}\n" for n, value in enumerate(values)) + ",31\n")
    frame = pandas.read_csv(path)
    assert frame["sales"][:-1].sum() == frame["sales"].iloc[-1]
    notes = "\n".join(Labelled(path=str(path), text="month", score="sales").notes())
    assert "line 10 of 'a.csv' ends the table with 31, the sum of column 2" in notes
    path.write_text(path.read_text().replace(",31", ",30"))
    assert "the sum" not in "\n".join(Labelled(path=str(path), text="month", score="sales").notes())


@pytest.mark.parametrize(
    "note", ["Source: World Bank, 2020", "* preliminary", "¹ estimated", "Note: rounded, in millions", "© Us, 2020"]
)
def test_footnotes_are_told(tmp_path: Path, note: str) -> None:
    assert "line 62 (" in told(tmp_path / "a.csv", note) and "looks like a footnote" in told(tmp_path / "a.csv", note)
    assert "line 63 ('as of today')" in told(tmp_path / "a.csv", "", "as of today")


def test_texts_like_footnotes_in_the_table_are_examples(tmp_path: Path) -> None:
    rows = [f"{['Note:', '*', 'Source:'][n % 3]} {row}" if n % 5 == 0 else row for n, row in enumerate(ROWS)]
    assert "footnote" not in told(tmp_path / "a.csv", rows=rows)
    assert "example" not in told(tmp_path / "a.csv").replace("examples share", "").partition("held out")[0]


def test_a_second_table_is_told_also_of_as_many_columns(tmp_path: Path) -> None:
    counts = ["word,count", *(f"{word},{n}" for n, word in enumerate(WORDS))]
    for blank in ("", ","):
        found = told(tmp_path / "a.csv", blank, *counts)
        assert "line 63 ('word, count') of 'a.csv' begins another table, of 2 columns, below an empty line" in found
    assert "another table" not in told(tmp_path / "a.csv", "", *ROWS)
    many = [f"{row} {n}" for n, row in enumerate(ROWS * 40)]  # the end of a long file is looked at, too
    assert "begins another table" in told(tmp_path / "a.csv", "", *counts, rows=many)


def test_tables_side_by_side_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label,,word,count\n" + "".join(f"{row},,a,1\n" for row in ROWS))
    notes = "\n".join(Labelled(path=str(path)).notes())
    assert "column 3 of 'a.csv' is empty, as between two tables side by side" in notes and "word, count" in notes


def test_merged_cells_of_the_columns_that_are_read_are_told(tmp_path: Path) -> None:
    rows = [row.partition(",")[0] + {0: ",pos", 30: ",neg"}.get(n, ",") for n, row in enumerate(ROWS)]
    (tmp_path / "b.csv").write_text("\n".join(rows))
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *rows]))
    splits = {"validation_path": str(tmp_path / "a.csv"), "test_path": str(tmp_path / "a.csv")}
    assert "label is filled in 2 rows" in "\n".join(Labelled(path=str(tmp_path / "a.csv"), **splits).notes())
    splits = {name: str(tmp_path / "b.csv") for name in splits}
    source = Labelled(path=str(tmp_path / "b.csv"), text=0, label=1, header=False, **splits)
    notes = "\n".join(source.notes())
    assert "column 1 is filled in 2 rows" in notes and "`frame[1] = frame[1].ffill()`" in notes


SOURCES: dict[str, tuple[str, Callable[[Path], tuple[str, ...]]]] = {
    "pairs": (".csv", lambda path: Pairs(path=str(path), source_column="text", target_column="label").notes()),
    "jsonl": (".csv", lambda path: JsonLines(path=str(path)).notes()),
    "pictures": (".csv", lambda path: Listed(path, "text", "label").notes),
    "series": (".csv", lambda path: TimeSeries(path=str(path), gaps="fill").notes()),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_of_tables_tells_totals(tmp_path: Path, kind: str) -> None:
    suffix, notes = SOURCES[kind]
    rows = [f"{n},{n % 7}" for n in range(60)] if kind == "series" else ROWS
    path = tmp_path / f"a{suffix}"
    path.write_text("\n".join(("text,label", *rows, "Total,60")) + "\n")
    assert "line 62 ('Total') of 'a.csv' looks like a row of totals" in "\n".join(notes(path))


def test_totals_of_every_split_are_told_with_their_file(tmp_path: Path) -> None:
    for name, last in (("a.csv", []), ("b.csv", ["Total,60"])):
        (tmp_path / name).write_text("\n".join(("text,label", *ROWS, *last)) + "\n")
    notes = Labelled(path=str(tmp_path / "a.csv"), test_path=str(tmp_path / "b.csv")).notes()
    assert "line 62 ('Total') of 'b.csv'" in "\n".join(notes)


def test_nul_characters_are_told(tmp_path: Path) -> None:
    assert "'a.csv'" not in told(tmp_path / "a.csv") or "NUL" not in told(tmp_path / "a.csv")
    assert "a.csv has 1 NUL character (the first in line 62)" in told(tmp_path / "a.csv", "a\0 dog,pos")


def test_marks_around_cells_that_are_read_as_text_are_told(tmp_path: Path) -> None:
    few = ["'so it is',pos", "not so,neg", "so so,pos"]
    said = told(tmp_path / "a.csv", rows=few)
    assert "1 cell of column 1 of 'a.csv' stands between ' and ' (line 2), which are read as text" in said
    assert 'data.quote="\'" reads them so' in said
    quoted = [f"“{row.replace(',', '”,')}" for row in ROWS]
    assert "60 cells of column 1 of 'a.csv' stand between “ and ” (line 2, 3" in told(tmp_path / "a.csv", rows=quoted)
    assert "read as text" not in told(tmp_path / "a.csv", rows=[*ROWS, "'yes',pos"])  # one of many


def test_a_column_whose_cells_hold_another_separator_is_told(tmp_path: Path) -> None:
    rows = ["so;it is,pos", "not;so,neg", "so;so,pos"]
    assert "each cell of column 1 of 'a.csv' holds 1 semicolon; if this separates cells" in told(
        tmp_path / "a.csv", rows=rows
    )
    assert "semicolon" not in told(tmp_path / "a.csv", rows=[*rows, "so,neg"])
