"""What the guess says of rows, cells and characters that a table of examples should not have."""

from __future__ import annotations

import csv
import io
import json
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pandas
import pytest

from qkv.data.readers.labelled_text import Labelled
from qkv.runs.recipes.guess import Guess, guess

WORDS = ("the", "red", "blue", "old", "dog", "cat", "house", "river", "sees", "likes")
DRAW = random.Random(0)
ROWS = [(" ".join(DRAW.choices(WORDS, k=7)), "pos" if n % 3 else "neg") for n in range(60)]


def table(path: Path, rows: Sequence[Sequence[str]], *more: str) -> Path:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([("text", "label"), *rows])
    path.write_text("\n".join((file.getvalue().rstrip("\n"), *more)) + "\n", encoding="utf-8")
    return path


def said(found: Guess) -> str:
    return "\n".join(found.seen)


@pytest.mark.parametrize("last", ["Total,60", "Sum,60", "Gesamt:,60", "Grand total,", ",Total", "Итого,60"])
def test_a_row_of_totals_is_told(tmp_path: Path, last: str) -> None:
    path = table(tmp_path / "a.csv", ROWS, last)
    assert "line 62 (" in said(guess(path)) and "looks like a row of totals" in said(guess(path))
    assert "totals" not in said(guess(table(path, ROWS, "the total of all,neg")))


def test_totals_below_the_rows_that_are_looked_at_are_told(tmp_path: Path) -> None:
    many = [(f"{text} {n}", label) for n, (text, label) in enumerate(ROWS * 50)]
    assert "line 3,002 ('Total')" in said(guess(table(tmp_path / "a.csv", many, "Total,3000")))


def test_a_class_that_occurs_once_is_told(tmp_path: Path) -> None:
    found = said(guess(table(tmp_path / "a.csv", [*ROWS[:9], ("a dog sees it all again", "Pso"), *ROWS[9:]])))
    assert "1 row has a class of which no other row that was looked at is: 'Pso' (line 11)" in found
    assert "no other row" not in said(guess(table(tmp_path / "a.csv", ROWS)))


def test_merged_cells_are_told_with_pandas_line_that_fills_them(tmp_path: Path) -> None:
    blocks = [(text, {0: "pos", 30: "neg"}.get(n, "")) for n, (text, _) in enumerate(ROWS)]
    path = table(tmp_path / "a.csv", blocks)
    line = next(line for line in guess(path).seen if "merged cells" in line)
    assert "label is filled in 2 rows" in line
    frame = pandas.read_csv(path)
    exec(line.split("`")[1])
    frame.to_csv(path, index=False)
    assert "pos (30), neg (30)" in said(guess(path)) and "merged" not in said(guess(path))


@pytest.mark.parametrize("size", [3, 5])
def test_a_second_table_is_told(tmp_path: Path, size: int) -> None:
    other = [",".join(f"x{n}{row}" for n in range(size)) for row in range(3)]
    found = said(guess(table(tmp_path / "a.csv", ROWS, "", *other)))
    assert "line 63 (" in found and f"begins another table, of {size} columns, below an empty line" in found
    assert "another table" not in said(guess(table(tmp_path / "a.csv", ROWS, "", *(",".join(row) for row in ROWS))))


FORMS = {
    "markdown": "| text | label |\n|:---|---|\n{}",
    "mysql": "+-----+-----+\n| text | label |\n+-----+-----+\n{}+-----+-----+\n",
    "psql": " text | label\n------+------\n{}",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_a_table_drawn_with_bars_is_refused_with_a_command_that_converts_it(
    tmp_path: Path, form: str, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path, outer = Path(f"a{suffix}"), "" if form == "psql" else "|"
    path.write_text(FORMS[form].format("".join(f"{outer} {text} | {label} {outer}\n" for text, label in ROWS)))
    with pytest.raises(ValueError, match=r"a table drawn with \| and dashes") as error:
        guess(path)
    if suffix == ".csv":
        with pytest.raises(ValueError, match="drawn"):
            next(Labelled.from_dict({"path": str(path), "text": "text"}).examples())
    command = str(error.value).split("`")[1].replace("> a.tsv", "> b.tsv")
    subprocess.run(command, shell=True, check=True)
    assert pandas.read_csv("b.tsv", sep="\t").to_numpy().tolist() == [list(row) for row in ROWS]
    assert guess("b.tsv").recipe == "classify"


def test_a_drawn_table_in_a_text_is_told_and_rules_in_a_table_are_no_drawing(tmp_path: Path) -> None:
    rows = "".join(f"| {text} | {label} |\n" for text, label in ROWS)
    (tmp_path / "a.md").write_text(f"| text | label |\n|---|---|\n{rows}")
    found = guess(tmp_path / "a.md")
    assert found.recipe == "lm" and "drawn with |" in said(found)
    (tmp_path / "a.csv").write_text("text|label\n" + "".join(f"{text}|{label}\n" for text, label in ROWS))
    assert guess(tmp_path / "a.csv").recipe == "classify"


def test_column_names_without_rows_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\n")
    with pytest.raises(ValueError, match="the column names text, label, and no rows below them"):
        guess(tmp_path / "a.csv")


def test_nul_characters_are_counted_and_kept_as_by_pandas(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", ROWS, "a\0 dog\0 sees,pos")
    assert "a.csv has 2 NUL characters (the first in line 62), kept as part of the text" in said(guess(path))
    texts = [row["text"] for row in Labelled.from_dict({"path": str(path), "text": "text"}).examples()]
    assert "a\0 dog\0 sees" in {*texts, pandas.read_csv(path)["text"].iloc[-1]}
    path.write_text(path.read_text().replace("\0", ""), encoding="utf-16")
    assert "NUL" not in said(guess(path))


OBJECTS = [json.dumps({"text": text, "label": label}) for text, label in ROWS]
WRONG = {
    "remove the comma at the end of each line": ("jsonl", "".join(f"{one},\n" for one in OBJECTS)),
    "remove the comma before the closing bracket": ("json", f"[{','.join(OBJECTS)},]"),
    "lines end with carriage returns": ("jsonl", "\r".join(OBJECTS)),
    "JSON has no comments: remove them": ("json", f"[\n// all\n{','.join(OBJECTS)}]"),
    "JSON has no comments": ("jsonl", "\n".join(f"{one} # one" for one in OBJECTS)),
    "write one object per line": ("jsonl", "".join(OBJECTS)),
    "not in ': if Python wrote it": ("jsonl", "\n".join(map(str, map(json.loads, OBJECTS)))),
    "null, true and false": ("jsonl", "\n".join(one.replace('"pos"', "None") for one in OBJECTS)),
}


@pytest.mark.parametrize("advice", WRONG)
def test_invalid_json_is_told_with_its_cause(tmp_path: Path, advice: str) -> None:
    suffix, text = WRONG[advice]
    (tmp_path / f"a.{suffix}").write_bytes(text.encode())
    with pytest.raises(ValueError, match="is not valid JSON") as error:
        guess(tmp_path / f"a.{suffix}")
    assert advice in str(error.value)
    with pytest.raises(ValueError, match="is not valid JSON") as error:
        next(Labelled.from_dict({"path": str(tmp_path / f"a.{suffix}"), "text": "text", "label": "label"}).examples())
    assert advice in str(error.value)
