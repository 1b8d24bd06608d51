"""Tables of cells as pandas, Excel and corpora without quoting write them."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.files.csv_dialect import Quotes
from qkv.data.files.csv_tsv import Cells
from qkv.data.files.records import RecordFormat, open_records


def rows(path: Path, **options: Any) -> list[list[str]]:
    cells = Cells(path, options.pop("form", "tsv"), "utf-8", **options)
    return [cells[i] for i in range(len(cells))]


def file(tmp_path: Path, text: str, name: str = "x.tsv") -> Path:
    (tmp_path / name).write_bytes(text.encode())
    return tmp_path / name


PAIRS = [["He said, hi.", "Er sagte hallo."], ['"Hello," he said.', "„Hallo“, sagte er."], ["a\tb", "c\nd"], ["x", "y"]]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_what_pandas_writes_is_read_back(tmp_path: Path, quoting: int, line_end: str) -> None:
    path = tmp_path / "x.tsv"
    pandas.DataFrame(PAIRS).to_csv(path, sep="\t", index=False, header=False, quoting=quoting, lineterminator=line_end)
    cells = Cells(path, "tsv", "utf-8")
    assert cells.quoted and [cells[i] for i in range(4)] == PAIRS
    assert [cells.line(i) for i in range(4)] == [1, 2, 3, 5]


def test_what_excel_writes_is_read_back(tmp_path: Path) -> None:
    path = file(tmp_path, '"Hello, you."\tHallo du.\r\nGo.\t"Geh, los."\r\n')
    assert rows(path) == [["Hello, you.", "Hallo du."], ["Go.", "Geh, los."]]


@pytest.mark.parametrize(
    "text",
    [
        '"Hello," he said.\t„Hallo“, sagte er.\nGo.\tGeh.\n',  # a quotation at the beginning of a sentence
        '"Hello."\t"Hallo."\nGo.\tGeh.\n',  # a sentence that is a quotation
        '"Hello, you."\t"Hallo, du."\nNo, no.\tNein, nein.\n',  # Excel would have quoted the second line, too
        'He said "go".\tEr sagte "geh".\n"Go."\t"Geh."\n',  # whoever quotes would have quoted the first line
        '"I came.\tIch kam.\nI saw."\tIch sah.\nGo.\tGeh.\n',  # a quotation over two sentences
        '"I came.\tIch kam.\nGo.\tGeh.\n',  # and one that never ends
    ],
)
def test_a_corpus_without_quoting_is_read_as_it_stands(tmp_path: Path, text: str) -> None:
    assert rows(file(tmp_path, text)) == [line.split("\t") for line in text.splitlines()]


def test_a_setting_decides_against_what_it_looks_like(tmp_path: Path) -> None:
    path = file(tmp_path, '"Hello."\t"Hallo."\nGo.\tGeh.\n')
    assert rows(path, quoted=True)[0] == ["Hello.", "Hallo."]
    assert any("data.quoted=true" in note for note in Cells(path, "tsv", "utf-8").notes(None, None))
    broken = file(tmp_path, 'Go.\tGeh.\n"I came.\tIch kam.\n', "y.tsv")
    with pytest.raises(ValueError, match=r"y\.tsv', line 2, is not valid TSV with quoted cells .*quoted=false"):
        rows(broken, quoted=True)


def test_quoting_is_seen_where_it_begins_late(tmp_path: Path) -> None:
    path = file(tmp_path, "Go.\tGeh.\n" * 1000 + '"say ""go"""\tsag geh\n')
    assert rows(path)[-1] == ['say "go"', "sag geh"]


def loose(path: Path, **options: Any) -> list[list[str] | str]:
    """The rows of a file, an error's text in place of what is wrong."""
    cells, found = Cells(path, "csv", "utf-8", strict=False, **options), list[list[str] | str]()
    for i in range(len(cells)):
        try:
            found.append(cells[i])
        except ValueError as error:
            found.append(str(error))
    return found


def test_a_wrong_row_is_a_separate_error(tmp_path: Path) -> None:
    good = [[f"text {i}", str(i % 2)] for i in range(100)]
    lines = [",".join(row) for row in good]
    path = file(tmp_path, "\n".join([*lines[:50], '"a "b" c",0', *lines[50:], ""]), "x.csv")
    with pytest.raises(ValueError, match="line 51, is not valid CSV"):
        rows(path, form="csv")
    found = loose(path)
    assert [row for row in found if isinstance(row, list)] == good
    assert "line 51, is not valid CSV" in found[50]


def test_a_quotation_that_never_ends_costs_its_own_line(tmp_path: Path) -> None:
    found = loose(file(tmp_path, 'a,0\n"b,1\nc,0\nd,1\n', "x.csv"))
    assert found[0] == ["a", "0"] and "line 2, is not" in found[1] and found[2:] == [["c", "0"], ["d", "1"]]
    assert (
        len(loose(file(tmp_path, 'a","x\n' * 3000, "y.csv"))) < 3000
    )  # each line opens one: not all are read again for each


def test_bytes_of_no_text_cost_their_own_row(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"a,0\nb\xff,1\nc,0\n")
    found = loose(path)
    assert (found[0], found[2]) == (["a", "0"], ["c", "0"]) and "line 2" in found[1]


@pytest.mark.parametrize("strict", [True, False])
def test_carriage_returns_end_rows(tmp_path: Path, strict: bool) -> None:
    table = [["text", "label"], ["a", "0"], ["b\rb", "1"], ["c", "0"]]
    mac = 'text,label\ra,0\r"b\rb",1\rc,0\r'
    mixed = 'text,label\na,0\r"b\rb",1\nc,0\r\n'
    assert rows(file(tmp_path, mac, "x.csv"), form="csv", strict=strict) == table
    assert rows(file(tmp_path, mixed, "y.csv"), form="csv", strict=strict) == table
    found = loose(file(tmp_path, 'a,0\r"b"b,1\rc,0\nd,1\n', "z.csv"))
    assert [row for row in found if isinstance(row, list)] == [["a", "0"], ["c", "0"], ["d", "1"]] and len(found) == 4


@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_a_carriage_return_within_a_cell_is_text(tmp_path: Path, form: str) -> None:
    table = [["text", "label"], ["good\rfilm", "1"], ['a "b"', "2"], ["c", "3\rd"]]
    text = 'text,label\ngood\rfilm,1\n"a ""b""",2\r\nc,3\rd\n'.replace(",", "," if form == "csv" else "\t")
    assert rows(file(tmp_path, text, f"x.{form}"), form=form) == table


texts = st.text(st.sampled_from('ab",\t\n '), min_size=1, max_size=8).filter(lambda text: text.strip(" ") == text)


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=8))
def test_csv_is_read_back_whatever_it_holds(
    tmp_path_factory: pytest.TempPathFactory, table: list[tuple[str, str]]
) -> None:
    out = io.StringIO(newline="")
    csv.writer(out).writerows(table)
    path = file(tmp_path_factory.mktemp("x"), out.getvalue(), "x.csv")
    assert [tuple(row) for row in rows(path, form="csv", quoted=True)] == table


def test_a_long_cell_and_semicolons(tmp_path: Path) -> None:
    long = "x" * 200_000  # the csv module's own limit is 131,072
    assert rows(file(tmp_path, f'"{long}";"a ""b"""\n1;2\n', "x.csv"), form="csv") == [[long, 'a "b"'], ["1", "2"]]


TABLE = "text,label\n" + "".join(f"the film {i} is fine,{'good' if i % 3 else 'bad'}\n" for i in range(60))


@pytest.mark.parametrize(
    ("above", "lines"),
    [
        ("Reviews of 2024\n", [1]),
        ("# exported by a tool\n# at noon, today\n", [1, 2]),
        ("# a, b\n", [1]),
        ("Reviews,\n-,\n", [1, 2]),
        ("Reviews, 2024\n\n", [1]),
        ('\n"Reviews\n2024"\n\nby me\n', [2, 5]),
    ],
)
@pytest.mark.parametrize("sep", [",", ";", "\t"])
def test_titles_and_comments_above_the_names_are_passed_over_and_said(
    above: str, lines: list[int], sep: str, tmp_path: Path
) -> None:
    path = tmp_path / ("a.tsv" if sep == "\t" else "a.csv")
    path.write_text(above.replace(",", sep) + TABLE.replace(",", sep))
    cells = Cells(path, "tsv" if sep == "\t" else "csv", "utf-8", True)
    skipped = len(above.splitlines())
    frame = pandas.read_csv(io.StringIO(TABLE))
    assert cells.names(None) == tuple(frame.columns) and len(cells) == 1 + len(frame)
    assert [cells[i] for i in range(1, len(cells))] == frame.values.tolist()
    (said,) = [note for note in cells.notes(None, None) if "above the column names" in note]
    assert [int(number) for number in re.findall(r"(\d+) \('", said)] == lines
    assert any(note.startswith(f"line {skipped + 1} of") for note in cells.notes(None, None))


@pytest.mark.parametrize(
    "text",
    [
        TABLE.partition("\n")[2],
        "text\n" + "hello, world\ngood, morning\nwell, then\n" * 9,  # one column of texts with commas
        "# x,y\n" + "1,2\n3,4\n" * 20,  # its names begin with a mark
        "a film\n" + TABLE.partition("\n")[2],  # a row without a label
        TABLE[:150] + "\n\n" + TABLE,  # two files, one after the other
    ],
)
def test_other_first_rows_belong_to_the_table(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    cells = Cells(tmp_path / "a.csv", "csv", "utf-8")
    assert not cells.above and ",".join(cells[0]) == text.partition("\n")[0]


def test_a_title_that_can_not_be_told_is_named_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("Report,2024,x\nby,me,you\n" + "one,two,three,four,five\n" * 40)
    with pytest.raises(ValueError, match="line 1 is read as the header: remove it if it is a title or a comment"):
        Cells(path, "csv", "utf-8").check_width(("Report", "2024", "x"))
    path.write_text("Report,2024\n" + TABLE)
    with pytest.raises(ValueError, match="has no column 'text'; line 2 has it: remove the lines above"):
        open_records(path, ("text",), RecordFormat())


def test_byte_order_marks_within_the_first_row_are_left_out(tmp_path: Path) -> None:
    """As in a file that was put together column by column."""
    cells = Cells(file(tmp_path, "\ufefftext,\ufefflabel\ngood,1\nbad,0\nfine,1\n", "x.csv"), "csv", "utf-8")
    assert cells.names(True) == ("text", "label") and cells[1] == ["good", "1"]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_a_tab_and_a_line_end_in_one_cell_do_not_hide_the_quoting(tmp_path: Path, quoting: Any) -> None:
    """Each line of such a row has as many tabs as a row; other cells that need their quotes decide."""
    rows = [["a", "b"], ["a\tb\nc", "d"], ['say "e"', "f"], ["g\th", "i"], ["j", "k"]]
    path = tmp_path / "a.tsv"
    with path.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out, delimiter="\t", quoting=quoting).writerows(rows)
    cells = Cells(path, "tsv", "utf-8")
    assert cells.quoted and [cells[i] for i in range(len(cells))] == rows
    path.write_text('a\tb\n"c\td\ne"\tf\ng\th\n')  # nothing else needs quotes: three rows, as it stands
    assert not Cells(path, "tsv", "utf-8").quoted


def test_empty_lines_say_nothing_of_quotes(tmp_path: Path) -> None:
    assert rows(file(tmp_path, '\ntext\tlabel\n"a\tb"\tgood\nwell\tbad\n\n'))[:3] == [
        ["text", "label"],
        ["a\tb", "good"],
        ["well", "bad"],
    ]
    assert rows(file(tmp_path, '"text"\n"a\tb"\n"say ""c"""\n\n'))[:3] == [["text"], ["a\tb"], ['say "c"']]
    unquoted = 'He came.\tEr kam.\n"Go."\t"Geh."\n\nNo.\tNein.\n'  # an empty line is no cell that needs its quotes
    assert rows(file(tmp_path, unquoted))[1] == ['"Go."', '"Geh."']


def test_one_column_of_a_tsv_is_quoted_if_a_cell_has_doubled_marks(tmp_path: Path) -> None:
    texts = ["text", "two\nlines", 'say "so"', "and\nthree\nlines", "plain"]
    out = io.StringIO()
    csv.writer(out, delimiter="\t", lineterminator="\n").writerows([text] for text in texts)
    assert rows(file(tmp_path, out.getvalue())) == [[text] for text in texts]
    assert rows(file(tmp_path, 'text\n"Go\nhome"\nplain\n')) == [["text"], ['"Go'], ['home"'], ["plain"]]


def test_one_column_before_a_separator_has_no_titles(tmp_path: Path) -> None:
    """Each row has one cell, as a title has, and the first may look like names."""
    lines = ["Text", *("1", "NA"), *(f"the film {i} is fine" for i in range(40))]
    cells = Cells(file(tmp_path, "".join(f"{line},\n" for line in lines), "x.csv"), "csv", "utf-8")
    assert not cells.above and [cells[i][0] for i in range(len(cells))] == lines


def test_other_quotes_are_told_beside_the_setting_that_reads_them(tmp_path: Path) -> None:
    path = file(tmp_path, "".join(f"'the film {i}'\t'good'\n" for i in range(9)))
    assert any("seem to be quoted by '; " in note for note in Cells(path, "tsv", "utf-8").notes(False, None))
    read = Cells(path, "tsv", "utf-8", quotes=Quotes("'"))
    assert read[0] == ["the film 0", "good"] and not any("seem" in note for note in read.notes(False, None))
