"""Guess a recipe for a file: a table, JSON, CoNLL, FASTA, MIDI, or text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from ....core.metrics.entities import scheme_of
from ....core.spec import counted
from ....data.classes import class_name
from ....data.file_kinds import drawn_table, markup, other_kind, other_table, without_marks
from ....data.files.compressed import bare_name, open_bytes, suffix_of
from ....data.files.csv_dialect import BEGINNING, detected_separator, fit, named
from ....data.files.csv_tsv import Form, no_record
from ....data.files.encodings import BEGINNING as BYTES
from ....data.files.encodings import guessed_encoding, nul_note, open_text, said_of
from ....data.files.json_lines import holds_json, json_entries, json_object
from ....data.files.lines import Lines
from ....data.files.number_tables import finite
from ....data.files.parquet import SUFFIX, ParquetRows
from ....data.files.records import FORMATS, RecordFormat
from ....data.readers.fasta import SUFFIXES as FASTA
from .column import Column
from .records import of_fields, of_one_value, types_in
from .result import Guess, setting
from .tables import ROWS, of_columns

PIECES = re.compile(rb'\s*(\{\s*"\w+"\s*:\s*)?\[\s*\[\s*\[')  # of music: lists of lists of chords
WHAT_FASTA = "FASTA, whose labels are in another file (qkv train protein data.kind=fasta data.path=… data.labels=…)"
_ALIKE = 0.9  # of the lines that a separator divides into equally many cells
_CONTROL = np.array([byte for byte in range(32) if byte not in b"\t\n\r\f\x1b"], np.uint8)
_MOST_CONTROL = 0.02  # of a text's bytes
_RULE = re.compile(r"[|:\s-]*--[|:\s-]*")  # below the names of a table in Markdown
_TABLES = (".csv", ".tsv", ".json", ".jsonl", ".xls", ".xlsx")
_LEAST = 5  # lines that can show a table
MOST_CLASSES = 40  # of a file with a label and a text on each line


def of_file(path: Path, how: RecordFormat) -> Guess | str:
    """Guess a recipe for a file, or return what was seen if nothing fits. Unless `how` says otherwise, text that is not
    UTF-8 is read as Latin-1 or cp1252."""
    if suffix_of(path) == SUFFIX:
        rows = ParquetRows(path)
        return _records(path, [rows[i] for i in range(min(len(rows), ROWS))], len(rows), how)
    if path.name.lower().endswith((".mid", ".midi")):
        return Guess("music", ("data.kind=scores", setting("data.path", path), "data.steps=4"), ("a MIDI file",))
    other = other_table if suffix_of(path) in _TABLES else other_kind
    if (kind := other(path, open_bytes(path))) is not None:
        return kind
    if (marks := markup(path, open_bytes(path))) == "a Jupyter notebook":
        return f"it is {marks}; {without_marks(path, marks)}"
    if how.encoding != "utf-8" or is_utf8(path):
        return _with_nul(path, how)
    if not is_text(path):
        zeros = bytes(open_bytes(path)[:BYTES]).count(0) > _ALIKE / 4 * min(BYTES, len(open_bytes(path)))
        wide = " (or give data.encoding=utf-16-le, if it is UTF-16 without a byte-order mark)" if zeros else ""
        return f"it is not text; save a table as .csv or .parquet, and a document as .txt{wide}"
    try:
        encoding = encoding_of(path)
    except ValueError as error:
        return str(error)
    return in_another(path, encoding, _with_nul(path, replace(how, encoding=encoding)))


def in_another(path: Path, encoding: str, found: Guess | str) -> Guess | str:
    """What was found in a file that is not UTF-8, with the setting of its encoding."""
    if isinstance(found, str):
        return found
    content = bytes(open_bytes(path)[:BYTES])
    how = said_of(content, encoding)
    seen = f"it is not UTF-8 and is read as {encoding}, which is a guess (data.encoding overrules it): {how}"
    return replace(found, settings=(*found.settings, f"data.encoding={encoding}"), seen=(*found.seen, seen))


def encoding_of(path: Path) -> str:
    """The encoding of a file by its beginning; also "ascii". Raises ValueError, with the line and advice, if it can't be
    told."""
    try:
        return guessed_encoding(bytes(open_bytes(path)[:BYTES]))
    except ValueError as error:
        raise ValueError(f"{error} (data.encoding=NAME)") from None


def is_utf8(path: Path) -> bool:
    """Whether a file begins as valid UTF-8. Files in UTF-16 are left to their reader."""
    try:
        return encoding_of(path) in ("ascii", "utf-8")
    except ValueError:
        return False


def is_text(path: Path) -> bool:
    """Whether a file in an unknown encoding may be text: it has hardly any control characters."""
    beginning = np.frombuffer(bytes(open_bytes(path)[:BYTES]), np.uint8)
    return bool(np.isin(beginning, _CONTROL).mean() < _MOST_CONTROL)


def _with_nul(path: Path, how: RecordFormat) -> Guess | str:
    found = _in_encoding(path, how)
    note = nul_note(path, open_text(path, how.encoding)) if isinstance(found, Guess) else None
    return found if note is None else _saying(found, note)


def _in_encoding(path: Path, how: RecordFormat) -> Guess | str:
    suffix = suffix_of(path)
    if how.sep or how.format in ("csv", "tsv"):
        return _table(path, "tsv" if how.form(path) == "tsv" else "csv", how)
    if how.format == "jsonl" or FORMATS.get(suffix) == "jsonl":
        return _json(path, how)
    if how.format is None and holds_json(path, how.encoding):
        return _saying(_json(path, how), f"{path.name} holds JSON, whatever its name says, and is read as such")
    if suffix in (".csv", ".tsv"):
        return _table(path, "tsv" if suffix == ".tsv" else "csv", how)
    if suffix in FASTA:
        return f"it is {WHAT_FASTA}"
    if suffix in (".conll", ".conllu", ".bio", ".iob"):
        return _tags(path, "a file of words and tags", how.encoding)
    return _text(path, how)


def _saying(found: Guess | str, *notes: str) -> Guess | str:
    """What was found, with notes on how the file is read."""
    return "; ".join((found, *notes)) if isinstance(found, str) else replace(found, seen=(*found.seen, *notes))


def _read_by(found: Guess | str, by_name: tuple[str, ...], more: tuple[str, ...]) -> Guess | str:
    """What was found, with settings for how the file is read: `by_name` if fields are read by name alone, else
    `more`."""
    if isinstance(found, str):
        return found
    return replace(found, settings=(*found.settings, *(more if "data.kind=choices" in found.settings else by_name)))


def _table(path: Path, form: Form, how: RecordFormat) -> Guess | str:
    more = () if suffix_of(path) in (".csv", ".tsv") else (f"data.format={form}",)
    if form == "tsv" and not how.sep and (sep := _other_separator(path, how)):
        note = f"no line of {path.name} that was looked at has a tab; its cells are separated by {named(sep)}"
        how, more = replace(how, sep=sep), (*more, setting("data.sep", sep))
        return _saying(_cells(path, "csv", how, more), note)
    return _cells(path, form, how, more)


def _other_separator(path: Path, how: RecordFormat) -> str | None:
    """The separator of a .tsv without tabs whose lines another one divides alike."""
    lines = [line for line in _first(Lines(path, how.encoding, False)) if line.strip()]
    if any("\t" in line for line in lines):
        return None
    sep = detected_separator("\n".join(lines[:BEGINNING]))
    return sep if fit(lines[:BEGINNING], sep)[0] > _ALIKE else None


def _cells(path: Path, form: Form, how: RecordFormat, more: tuple[str, ...]) -> Guess | str:
    cells = how.cells(path, form)
    if not len(cells):
        return "it holds no rows"
    if (quotes := cells.other_quotes) is not None:
        note = f"the cells of {path.name!r} are {quotes}, as its lines show ({' '.join(quotes.settings())})"
        return _saying(_cells(path, form, replace(how, quotes=quotes), (*more, *quotes.settings())), note)
    names, rows, wrong = cells.names(how.header), list[tuple[int, list[str]]](), list[ValueError]()
    for i in range(bool(names), min(len(cells), ROWS)):
        try:
            rows.append((cells.line(i), cells[i]))
        except ValueError as error:  # told by `faults`
            wrong.append(error)
    if wrong and not any(row for _, row in rows):
        return f"no row can be read ({wrong[0]})"
    width, count = cells.columns(names), len(cells) - bool(names)
    rows = [(line, row) for line, row in rows if no_record(row, names, width) is None]
    if names and not count:
        return f"it holds the column names {', '.join(names)[:80]}, and no rows below them"
    notes = (*cells.notes(how.header, how.quoted), *cells.faults(names))
    if count and not rows:
        alone = "; if they are one text each, data.sep=tab reads a line as one cell" if width == 1 else ""
        return f"all rows that were looked at are empty, or have more cells than names{alone}; {'; '.join(notes)}"
    fields = {name: [row[i] for _, row in rows if i < len(row) and row[i].strip()] for i, name in enumerate(names)}
    if (found := of_fields(path, fields, count)) is not None:
        by_name = () if not more else (setting("data.sep", cells.delimiter), *cells.quotes.settings())
        return _saying(_read_by(found, by_name, more), *cells.notes(True, how.quoted))
    columns = columns_of(rows, names, width, how.missing)
    columns = [column.with_points(thousands=cells.delimiter == ",") for column in columns]
    return _saying(of_columns(path, columns, count, more, table=True), *notes)


def columns_of(
    rows: Sequence[tuple[int, list[str]]], names: Sequence[str], width: int, missing: tuple[str, ...] | None
) -> list[Column]:
    """The columns of rows with their lines."""
    placed = [[(line, row[i].strip()) for line, row in rows if i < len(row)] for i in range(width)]
    return [
        Column(names[i] if i < len(names) else i, [cell for _, cell in part], missing, at=[line for line, _ in part])
        for i, part in enumerate(placed)
    ]


def _json(path: Path, how: RecordFormat) -> Guess | str:
    content = open_bytes(path)
    if bare_name(path).lower().endswith(".json"):
        if content.find(b'"paragraphs"') >= 0 and content.find(b'"qas"') >= 0:
            return Guess(
                "answer", ("data.kind=questions", setting("data.path", path)), ("questions in SQuAD's format",)
            )
        if all(content.find(key) >= 0 for key in (b'"annotations"', b'"categories"', b'"bbox"')):
            return "it has boxes in COCO's format; give its folder, with the images beside it"
        if PIECES.match(bytes(content[:1000])):
            seen = ("pieces of music as chords of MIDI numbers",)
            return Guess("music", ("data.kind=scores", setting("data.path", path)), seen)
    if (entries := json_entries(path)) is not None:
        records = [entry for entry in entries[:ROWS] if isinstance(entry, dict)]
        return _records(path, records, len(entries), how) if records else "it is a list, but not of objects"
    lines, records, at = Lines(path, how.encoding, False), list[dict[str, Any]](), list[int]()
    for i in range(min(len(lines), ROWS)):
        if not lines[i].strip():
            continue
        try:
            record = json_object(lines[i], lines.where(i))
        except ValueError:
            if not records and (why := of_one_value(path)) is not None:
                return why
            raise
        if isinstance(record, dict):
            records.append(record)
            at.append(i + 1)
    if len(lines) == 1 and bare_name(path).lower().endswith(".json") and (why := of_one_value(path)) is not None:
        return why
    return _records(path, records, len(lines), how, at)


def _records(
    path: Path, records: list[dict[str, Any]], count: int, how: RecordFormat, at: Sequence[int] = ()
) -> Guess | str:
    """Guess a recipe for `count` records, of which these are the first, `at` these lines, or else entries."""
    named = FORMATS.get(suffix_of(path)) in ("jsonl", "parquet")
    more = () if named else ("data.format=jsonl",)
    names = list(dict.fromkeys(name for record in records for name in record))
    fields = {name: [record[name] for record in records if record.get(name) is not None] for name in names}
    if (found := of_fields(path, fields, count)) is not None:
        return _read_by(found, (), more)
    unit, places = ("line", at) if at else ("entry", range(1, len(records) + 1))
    placed = {name: [(at, record.get(name)) for at, record in zip(places, records, strict=True)] for name in names}
    columns = [
        Column(
            name,
            [_cell(value) for _, value in values if not isinstance(value, list | dict)],
            how.missing,
            blank="null or empty",
            at=[at for at, value in values if not isinstance(value, list | dict)],
            unit=unit,
        )
        for name, values in placed.items()
    ]
    found = of_columns(path, [column for column in columns if column.cells], count, more, table=False)
    settings = () if isinstance(found, str) else found.settings
    return _saying(found, *(note for name, values in placed.items() for note in types_in(name, values, unit, settings)))


def _cell(value: Any) -> str:
    """A value as in a table; empty for none and for what is no text or number."""
    name = class_name(value)
    if name is not None:
        return name
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, float | Decimal | date | time) else ""


def _tags(path: Path, what: str, encoding: str) -> Guess:
    lines = Lines(path, encoding, False)
    tags = Counter(cells[-1] for line in _first(lines) if len(cells := line.split()) > 1)
    listed = ", ".join(tag for tag, _ in tags.most_common(6)) + (" …" if len(tags) > 6 else "")
    metric = () if scheme_of(tags) != "plain" else ("training.metric=accuracy",)
    seen = [f"{what}, {counted(len(lines), 'line')}"]
    if suffix_of(path) != ".conllu":
        seen.append(f"the tag is in the last column: {listed} (data.tag=N for another)")
    return Guess("tag", ("data.kind=columns", setting("data.path", path), *metric), tuple(seen))


def _first(lines: Lines) -> Iterator[str]:
    yield from (lines[i] for i in range(min(len(lines), ROWS)))


def _text(path: Path, how: RecordFormat) -> Guess | str:
    lines = Lines(path, how.encoding, False)
    some = [line for line in _first(lines) if line.strip()]
    if not some:
        return "it is empty"
    words = [line.split() for line in some]
    width = Counter(map(len, words)).most_common(1)[0]
    if width[1] > 0.95 * len(some) and width[0] in range(2, 12) and len(some) < min(len(lines), ROWS):
        labels = {row[-1] for row in words}
        if len(labels) < len(some) / 3:
            return _tags(path, f"{width[0]} columns, with empty lines between sentences", how.encoding)
    inside = _table_inside(path, some, how)
    if not isinstance(inside, tuple):
        return inside
    classes = Counter(row[0] for row in words if len(row) > 1)
    enough = 1 < len(classes) <= MOST_CLASSES and sum(classes.values()) == len(some) > 20 * len(classes)
    if enough and not any(name.isalpha() and not name.isupper() for name in classes):  # 1, LOC or __label__good
        listed = ", ".join(f"{name} ({n:,})" for name, n in classes.most_common(6))
        settings = ("data.kind=labelled", setting("data.path", path))
        return Guess("classify", settings, (f"a label and a text on each of {len(lines):,} lines: {listed}",))
    return Guess("lm", (setting("data.path", path),), (f"plain text, {counted(len(lines), 'line')}", *inside))


def _table_inside(path: Path, some: Sequence[str], how: RecordFormat) -> Guess | str | tuple[str, ...]:
    """The guess for a table in a file whose name does not say that it is one: its lines have tabs, or numbers between
    commas, or a separator divides them alike and the first has names. Without names, or if nothing reads such a table, a
    note."""
    if "\t" in some[0] and sum("\t" in line for line in some) > _ALIKE * len(some):
        form: Form = "tsv"
    elif (
        len(some) >= _LEAST and fit(list(some[:BEGINNING]), detected_separator("\n".join(some[:BEGINNING])))[0] > _ALIKE
    ):
        form = "csv"
    else:
        return ()
    if any(_RULE.fullmatch(line) for line in some[:3]):
        drawn = drawn_table(path, "\n".join(some[:3]).encode() + b"\n")
        return () if drawn is None else (drawn,)
    found = _table(path, form, how)
    cells = how.cells(path, form)
    rows = f"{cells.width} cells, separated by {named(cells.delimiter)}"
    if not isinstance(found, Guess):
        as_cells = f"its lines look like rows of {rows}, for which nothing is guessed: {found}"
        return (
            found if form == "tsv" else (f"{as_cells}; `qkv list recipes` shows what reads tables (data.format=csv)",)
        )
    numbers = all(finite(cell) is not None for line in some for cell in line.split(cells.delimiter))
    if form == "tsv" or numbers or (cells.heading.names and not cells.heading.unsure):
        as_text = Guess("lm", (setting("data.path", path),), ()).command()
        return _saying(found, f"{path.name} is read as a table of {rows}; `{as_text}` reads it as running text")
    return (f"its lines look like rows of {rows}; if they are, `{found.command()}` trains on them",)
