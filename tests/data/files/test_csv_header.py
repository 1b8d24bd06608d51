"""Header detection: names are told from data in tables as pandas, Excel and data sets write them."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from babel import Locale

from qkv.data.files import csv_header
from qkv.data.files.csv_dialect import detected_separator
from qkv.data.files.csv_header import heading, kind_of
from qkv.data.files.csv_tsv import Cells
from qkv.data.readers.labelled_text import Labelled
from qkv.data.readers.parallel_text import Pairs
from qkv.data.readers.time_series import TimeSeries

WORDS = ("the", "a", "red", "blue", "old", "dog", "cat", "house", "tree", "river", "sees", "likes", "finds", "today")


def texts(n: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(4, 9))) for _ in range(n)]


def classes(n: int) -> list[str]:
    return ["ham" if i % 3 else "spam" for i in range(n)]


def is_header(rows: Sequence[Sequence[str]]) -> bool:
    return bool(heading(rows[0], rows[1:]).names)


def written(frame: Any, **options: Any) -> list[list[str]]:
    """What `DataFrame.to_csv` writes, as rows of cells."""
    return list(csv.reader(io.StringIO(pandas.DataFrame(frame).to_csv(**options))))


@pytest.mark.parametrize("n", [5, 200])
@pytest.mark.parametrize(
    "names", ["message,team", "Category,Message", "v1,v2", "body,category", "kommentti,luokka", "text,label", "sms,y"]
)
def test_a_class_column_shows_names_that_are_in_no_list(names: str, n: int) -> None:
    first, second = names.split(",")
    rows = list(zip(texts(n), classes(n), strict=True))
    if first in ("Category", "v1"):
        rows = [(label, text) for text, label in rows]
    assert is_header([[first, second], *rows]) and not is_header(rows)


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("n", [1, 5, 200])
def test_what_pandas_writes_is_read_with_its_header(n: int, index: bool) -> None:
    labelled = {"message": texts(n), "team": classes(n)}
    numbers = np.random.default_rng(0).normal(size=(n, 4)).round(3)
    for frame in (labelled, list(zip(texts(n), classes(n), strict=True)), numbers, {"a": numbers[:, 0]}):
        if n > 1 or frame is not labelled:
            assert is_header(written(frame, index=index)), frame
        if n > 1:
            assert not is_header(written(frame, index=index, header=False)), frame


SMS = [
    ["v1", "v2", "", "", ""],
    *([label, text, "", "", ""] for text, label in zip(texts(50), classes(50), strict=True)),
]
REVIEWS = [["5", "Good.", "I like it."], *([str(i % 5 + 1), f"Film {i}.", text] for i, text in enumerate(texts(50)))]
SERIES = [["when", "inside"], *([f"{i % 28 + 1:02}.01.2024", f"{i / 7:.3f}"] for i in range(50))]
SHORT_FIRST = sorted(
    ([text, other] for text, other in zip([*texts(50), "go"], [*texts(50, 1), "geh"], strict=True)), key=str
)
COLUMNS = [["2019", "2020", "2021", "2022"], *([str(i * k % 7 / 7) for k in range(1, 5)] for i in range(50))]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (SMS, True),  # Excel's empty columns
        (REVIEWS, False),  # AG News: a class, a title and a text
        (SERIES, True),
        (SERIES[1:], False),
        (COLUMNS, True),  # years as names above numbers
        (COLUMNS[1:], False),
        ([[str(i), str(i + 1), str(i + 2), str(i + 3)] for i in range(50)], False),
        (sorted(SHORT_FIRST, key=lambda pair: len(pair[0])), False),  # sorted by length, as Tatoeba
        ([["Go.", "Geh."], ["Run!", "Lauf!"], ["Who?", "Wer?"], *([f"{t}.", f"{t}."] for t in texts(50))], False),
        ([["id", "english", "german"], ["1", "hello", "hallo"]], True),
        ([["English", "German"], ["hello", "hallo"]], True),
        ([["Deutsch", "Englisch"], *zip(texts(9), texts(9, 1), strict=True)], True),
        ([["hello", "hallo"], *zip(texts(9), texts(9, 1), strict=True)], False),
        ([["Berlin", "Berlin"], ["a house", "ein Haus"], ["a dog", "ein Hund"]], False),
        ([["text", "label"]], True),
        ([["hello", "hallo"]], False),
        ([["", ""]], False),
        ([["text"], *([text] for text in texts(20))], True),
    ],
    ids=str,
)
def test_real_looking_tables(rows: list[list[str]], expected: bool) -> None:
    assert is_header(rows) is expected


def test_the_sniffer_agrees_where_a_table_is_clear() -> None:
    for rows in (written({"day": range(30), "load": np.arange(30) / 7}, index=False), [["a", "1", "2"]] * 30):
        text = "\n".join(map(",".join, rows))
        assert csv.Sniffer().has_header(text) is is_header(rows)


def test_the_reason_and_doubt_are_said() -> None:
    rows = list(zip(texts(50), classes(50), strict=True))
    assert "none of the 50 cells below 'team' that were compared equals it" in heading(["message", "team"], rows).reason
    assert "'ham' is in its column again" in heading(["a red dog", "ham"], rows).reason
    assert "'load' is above numbers" in heading(["load"], [[str(i / 7)] for i in range(50)]).reason
    note = heading(["kysymys", "vastaus"], list(zip(texts(50), texts(50, 1), strict=True))).note("x.csv")
    assert note.startswith("the first line of x.csv is read as data")
    assert note.endswith("that is not certain, and data.header=true reads it as names")


@pytest.mark.parametrize(
    ("cell", "kind"),
    [("", "empty"), ("-1.5e3", "number"), ("1.234,5", "number"), ("$5", "number"), ("7 %", "number"), ("nan", "number"),
     ("2024-01-01", "date"), ("31.12.2024", "date"), ("12:30", "date"), ("v1", "text"), ("1st", "text"), ("-", "text")],
)  # fmt: skip
def test_kinds_of_cells(cell: str, kind: str) -> None:
    assert kind_of(cell) == kind


# -- files ----------------------------------------------------------------------------------------------------------


def table(path: Path, rows: Sequence[Sequence[Any]], sep: str = ",", encoding: str = "utf-8") -> str:
    with path.open("w", encoding=encoding, newline="") as file:
        csv.writer(file, delimiter=sep).writerows(rows)
    return str(path)


LABELLED = [["message", "team"], *zip(texts(200), classes(200), strict=True)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
def test_columns_and_classes_match_pandas(tmp_path: Path, sep: str, encoding: str) -> None:
    rows = [[text.replace("a ", "a, b; c\n"), label] for text, label in LABELLED]
    path = table(tmp_path / "x.csv", rows, sep, encoding)
    frame = pandas.read_csv(path, sep=sep, encoding=encoding)
    read = list(
        Labelled(path=path, validation_path=path, test_path=path, text=0, label=1).examples("train", shuffle=False)
    )
    assert [example["label"] for example in read] == frame["team"].tolist()
    assert [example["text"] for example in read] == frame["message"].str.strip().tolist()
    assert Cells(Path(path), "csv", "utf-8").names(None) == tuple(frame.columns)


def test_the_separator_is_the_one_that_fits_the_lines() -> None:
    assert detected_separator("when;value\n1,5;2,5\n2,5;3,5\n") == ";"
    assert detected_separator("1,5;2,5\n2,5;3,5\n") == ";"  # decimal commas
    assert detected_separator("Hello, you;good\nNo, no, no;bad\n") == ";"
    assert detected_separator("film 1, good\nfilm 2; is dull, bad\n") == ","
    assert detected_separator("one column\nof text, with a comma\n") == ","


def test_splits_whose_columns_differ_are_refused(tmp_path: Path) -> None:
    train = table(tmp_path / "train.csv", LABELLED)
    turned = table(tmp_path / "dev.csv", [row[::-1] for row in LABELLED])
    with pytest.raises(ValueError, match=r"column 0 of '.*dev\.csv' is 'team', and of '.*train\.csv' it is 'message'"):
        Labelled(path=train, validation_path=turned, text=0, label=1).table("validation")
    named = Labelled(path=train, validation_path=turned, text="message", label="team")
    assert {example["label"] for example in named.examples("validation")} == {"ham", "spam"}
    bare = table(tmp_path / "bare.csv", LABELLED[1:])
    with pytest.raises(ValueError, match=r"bare\.csv' has no column 'message'; its first line looks like data"):
        named.replace(validation_path=bare).table("validation")
    numbered = Labelled(path=train, validation_path=bare, text=0, label=1)
    assert {example["label"] for example in numbered.examples("validation")} == {"ham", "spam"}
    assert [note.partition(":")[0] for note in numbered.notes()][:2] == [
        "the first line of 'train.csv' is read as names, message, team",
        "the first line of 'bare.csv' is read as data",
    ]
    german = table(tmp_path / "a.tsv", [["de", "en"], ["hallo", "hello"]], "\t")
    english = table(tmp_path / "b.tsv", [["en", "de"], ["hello", "hallo"]], "\t")
    with pytest.raises(ValueError, match=r"column 0 of '.*b\.tsv' is 'en', and of '.*a\.tsv' it is 'de'"):
        Pairs(path=german, validation_path=english).table("validation")


def test_a_name_of_two_columns_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "x.csv", [["text", "label", "label"], *([t, "1", "2"] for t in texts(9))])
    with pytest.raises(ValueError, match="has 2 columns 'label'; rename one, or number the columns from 0"):
        Labelled(path=path).table("train")
    with pytest.raises(ValueError, match="has 2 columns 'label'"):
        Pairs(path=path, source_column="text", target_column="label").table("train")


@pytest.mark.parametrize("header", [True, False, None])
def test_a_series_with_numbers_for_names(tmp_path: Path, header: bool | None) -> None:
    values = np.random.default_rng(0).normal(size=(60, 4)).round(3)
    path = tmp_path / "x.csv"
    pandas.DataFrame(values, columns=[2019, 2020, 2021, 2022]).to_csv(path, index=False)
    read, names = TimeSeries(path=str(path), header=header).values()
    assert len(read) == 61 - (header is not False)
    if header is not False:
        np.testing.assert_allclose(read, values, rtol=1e-6)
        assert names == ("2019", "2020", "2021", "2022")


# -- rows with too many cells ---------------------------------------------------------------------------------------

FILMS = "text,label\nfilm 1 is fine,good\nfilm 2 is dull,bad\nfilm 3, is dull,bad\nfilm 4 is fine,good,,\n"


def test_a_row_with_more_cells_than_the_header_is_refused_as_by_pandas(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(FILMS.replace("good,,", "good"))
    with pytest.raises(pandas.errors.ParserError, match="Expected 2 fields in line 4, saw 3"):
        pandas.read_csv(path)
    with pytest.raises(
        ValueError,
        match=r"x\.csv' has 1 row with more cells than its header's 2: line 4 \(the first is 'film 3, is dull,bad'\); "
        r"quote cells that hold commas, or skip such rows with data\.on_error=skip",
    ):
        Labelled(path=str(path)).table("train")


def test_such_rows_are_skipped_and_counted_on_request(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(FILMS)
    entries = Labelled(path=str(path), validation_path=str(path), test_path=str(path), on_error="skip").table("train")
    read = [entries[i] for i in range(len(entries))]
    assert [str(entry) for entry in read if isinstance(entry, str)] == ["with more cells than columns"]
    assert read[2].where.endswith("x.csv', line 4")
    assert [entry["label"] for entry in read if isinstance(entry, dict)] == ["good", "bad", "good"]


def test_names_of_rows_without_a_name_of_their_column_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"  # as R's write.table writes it
    path.write_text("text,label\n" + "".join(f"{i},{t},{c}\n" for i, (t, c) in enumerate(LABELLED[1:])))
    with pytest.raises(ValueError, match="200 rows with more cells than its header's 2: lines 2, 3, 4, 5, 6, …"):
        Labelled(path=str(path)).table("train")
    with pytest.raises(ValueError, match="begin the header with a name for it"):
        Labelled(path=str(path)).table("train")


@pytest.mark.parametrize("quoted", [True, False])
def test_lines_of_a_tsv_without_a_header_are_compared_with_each_other(tmp_path: Path, quoted: bool) -> None:
    rows = [f"{a}\t{b}" for a, b in zip(texts(50), texts(50, 1), strict=True)]
    rows[20] += "\tmore"
    rows[30] += "\t"
    path = tmp_path / "x.tsv"
    path.write_text("\n".join(rows) + "\n")
    spec = Pairs(path=str(path), validation_path=str(path), test_path=str(path), header=False, quoted=quoted)
    with pytest.raises(ValueError, match=r"1 row with more cells than the 2 of other rows: line 21 .*hold tabs"):
        spec.table("train")
    assert len(list(spec.replace(on_error="skip").examples("train"))) == 49


def read_by_pandas(text: str, **options: Any) -> list[tuple[str, str]]:
    frame = pandas.read_csv(io.StringIO(text), **options)
    return [(row.iloc[0], row.iloc[1]) for _, row in frame.iterrows()]


@pytest.mark.parametrize(
    ("above", "sep", "options"),
    [("\n\n", ",", {}), (" \n\n", ",", {}), ("sep=;\n", ";", {"skiprows": 1}), ('"sep=;"\n\n', ";", {"skiprows": 1})],
)
def test_empty_lines_and_the_separator_of_excel_above_a_table_are_left_out(
    tmp_path: Path, above: str, sep: str, options: dict[str, Any]
) -> None:
    table = "".join(f'"{text}"{sep}{name}\n' for text, name in zip(texts(60), classes(60), strict=True))
    text = f"{above}arvio{sep}luokka\n{table}"
    (tmp_path / "t.csv").write_text(text)
    cells = Cells(tmp_path / "t.csv", "csv", "utf-8")
    assert cells.delimiter == sep and cells.names(None) == ("arvio", "luokka")
    assert cells.line(0) == above.count("\n") + 1 and cells.line(1) == above.count("\n") + 2
    read = [tuple(cells[i]) for i in range(1, len(cells))]
    assert read == read_by_pandas(text, sep=sep, skip_blank_lines=True, **options)
    (tmp_path / "t.csv").write_text(f"{text}a{sep}b{sep}c\n")
    with pytest.raises(ValueError, match=f"1 row with more cells than its header's 2: line {text.count(chr(10)) + 1}"):
        cells = Cells(tmp_path / "t.csv", "csv", "utf-8")
        cells.check_width(cells.names(None))


def test_names_that_stand_again_between_rows_are_no_data(tmp_path: Path) -> None:
    """As in files that were written one after another."""
    table = "review,label\n" + "".join(f"{text},{name}\n" for text, name in zip(texts(60), classes(60), strict=True))
    (tmp_path / "t.csv").write_text(table + table)
    source = Labelled(path=str(tmp_path / "t.csv"), text="review", label="label")
    rows = source.open("train")
    read = [rows[i] for i in range(len(rows))]
    good = [(row["text"], row["label"]) for row in read if isinstance(row, dict)]
    assert Cells(tmp_path / "t.csv", "csv", "utf-8").names(None) == ("review", "label")
    assert good == read_by_pandas(table) * 2
    assert [str(row) for row in read if not isinstance(row, dict)] == ["with the column names again"]
    assert heading(["hello", "hallo"], [["bye", "tschüss"], ["hello", "hallo"], ["yes", "ja"]]).names == ()


def test_the_names_of_languages_are_those_of_cldr() -> None:
    """A newer CLDR may name more of them."""
    codes = [code for code in csv_header._CODES.split() if len(code) == 2]
    theirs = [name for name in Locale("en").languages.values() if " " not in name and len(name) > 4]
    theirs += [Locale(place).languages.get(code, "") for place in codes for code in codes]
    words = {word for name in theirs for word in csv_header._WORD.findall(name.lower()) if len(word) > 1}
    assert len(words - csv_header._known()) <= 0.02 * len(words)
