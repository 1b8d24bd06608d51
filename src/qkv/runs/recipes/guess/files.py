"""Guess a recipe for a file: a table, JSON, CoNLL, FASTA, MIDI, or text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....core.metrics.entities import scheme_of
from ....core.spec import counted
from ....data.classes import class_name
from ....data.files.compressed import bare_name, open_bytes
from ....data.files.csv_tsv import Form, filled
from ....data.files.json_lines import json_entries, json_object
from ....data.files.lines import Lines
from ....data.files.parquet import SUFFIX, ParquetRows
from ....data.files.records import RecordFormat
from .result import Guess, setting
from .tables import ROWS, Column, is_number, of_columns

PIECES = re.compile(rb'\s*(\{\s*"\w+"\s*:\s*)?\[\s*\[\s*\[')  # of music: lists of lists of chords
BEGINNING = 1 << 20  # bytes that show the encoding
MOST_CLASSES = 40  # of a file with a label and a text on each line


def of_file(path: Path, how: RecordFormat) -> Guess | str:
    """Guess a recipe for a file, or return what was seen if nothing fits. Text that is not UTF-8 is read as Latin-1, unless
    `how` says otherwise."""
    if path.suffix == SUFFIX:
        rows = ParquetRows(path)
        return _records(path, [rows[i] for i in range(min(len(rows), ROWS))], len(rows), how.missing)
    if path.name.lower().endswith((".mid", ".midi")):
        return Guess("music", ("data.kind=scores", setting("data.path", path), "data.steps=4"), ("a MIDI file",))
    if how.encoding != "utf-8" or is_utf8(path):
        return _in_encoding(path, how)
    found = _in_encoding(path, replace(how, encoding="latin-1"))
    if isinstance(found, str):
        return found
    seen = (*found.seen, "it is not UTF-8 and is read as Latin-1 (data.encoding)")
    return replace(found, settings=(*found.settings, "data.encoding=latin-1"), seen=seen)


def is_utf8(path: Path) -> bool:
    """Whether a file begins as valid UTF-8. Files in UTF-16 are left to their reader."""
    beginning = bytes(open_bytes(path)[:BEGINNING])
    try:
        beginning.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(beginning) - 4 or beginning[:2] in (b"\xff\xfe", b"\xfe\xff")
    return True


def _in_encoding(path: Path, how: RecordFormat) -> Guess | str:
    name, encoding = bare_name(path).lower(), how.encoding
    if how.sep or how.format in ("csv", "tsv") or name.endswith((".csv", ".tsv")):
        return _table(path, "tsv" if how.form(path) == "tsv" else "csv", how)
    if name.endswith((".jsonl", ".ndjson")):
        return _json_lines(path, how)
    if name.endswith(".json"):
        return _json(path, how.missing)
    if name.endswith((".fasta", ".fa", ".faa")):
        return "it is FASTA, whose labels are in another file (qkv train protein data.kind=fasta data.labels=…)"
    if name.endswith((".conll", ".conllu", ".bio", ".iob")):
        return _tags(path, "a file of words and tags", encoding)
    return _text(path, how)


def _table(path: Path, form: Form, how: RecordFormat) -> Guess | str:
    cells = how.cells(path, form)
    names, rows, wrong = cells.names(how.header), list[list[str]](), list[ValueError]()
    for i in range(bool(names), min(len(cells), ROWS)):
        try:
            rows.append(cells[i])
        except ValueError as error:  # a bad row is the training's business
            wrong.append(error)
    if wrong and not any(rows):
        return f"no row can be read ({wrong[0]})"
    rows = [row for row in rows if row and filled(row) <= cells.columns(names) and tuple(row) != names]
    columns = [
        Column(names[i] if i < len(names) else i, [row[i].strip() for row in rows if i < len(row)], how.missing)
        for i in range(cells.columns(names))
    ]
    columns = columns if cells.delimiter == "," else [column.with_points() for column in columns]
    more = () if Path(bare_name(path)).suffix in (".csv", ".tsv") else (f"data.format={form}",)
    found = of_columns(path, columns, len(cells) - bool(names), more, table=True)
    notes = (*cells.notes(how.header, how.quoted), *cells.ragged(names))
    return "; ".join((found, *notes)) if isinstance(found, str) else replace(found, seen=(*found.seen, *notes))


def _json_lines(path: Path, how: RecordFormat) -> Guess | str:
    lines = Lines(path, how.encoding, False)
    records: list[dict[str, Any]] = []
    for i in range(min(len(lines), ROWS)):
        if lines[i].strip() and isinstance(record := json_object(lines[i], lines.where(i)), dict):
            records.append(record)
    return _records(path, records, len(lines), how.missing)


def _records(path: Path, records: list[dict[str, Any]], count: int, missing: tuple[str, ...] | None) -> Guess | str:
    """Guess a recipe for `count` records, of which these are the first."""
    fields = list(dict.fromkeys(name for record in records for name in record))
    kept = {name: [record[name] for record in records if record.get(name) is not None] for name in fields}
    for name in fields:
        if kept[name] and all(_is_conversation(value) for value in kept[name]):
            usual = name == "messages" or (name == "conversations" and "messages" not in fields)
            settings = (setting("data.path", path), *(() if usual else (setting("data.messages", name),)))
            return Guess("chat", settings, (f"{counted(count, 'line')}; {name!r} holds conversations",))
    if {"instruction", "output"} <= set(fields):
        seen = (f"{counted(count, 'line')} in Alpaca's format, with instructions",)
        return Guess("chat", (setting("data.path", path),), seen)
    if {"context", "question", "answer"} <= set(fields):
        settings = ("data.kind=questions", setting("data.path", path))
        return Guess("answer", settings, (f"{counted(count, 'question')} about texts, with their answers",))
    lists = [name for name in fields if all(isinstance(value, list) for value in kept[name])]
    if lists and "answer" in fields:
        text = next((name for name in fields if name not in (lists[0], "answer")), "text")
        fields_ = setting("data.text", text), setting("data.choices", [lists[0]])
        settings = ("data.kind=choices", setting("data.path", path), *fields_)
        return Guess("choose", settings, (f"{counted(count, 'line')}; {lists[0]!r} holds candidates",))
    columns = [Column(name, [_cell(record.get(name)) for record in records], missing) for name in fields]
    return of_columns(path, columns, count, (), table=False)


def _cell(value: Any) -> str:
    """A value as in a table; empty for none and for what is no text or number."""
    name = class_name(value)
    return name if name is not None else str(value) if isinstance(value, bool | float) else ""


def _is_conversation(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    turns = [set(turn) if isinstance(turn, dict) else set() for turn in value]
    return all({"from", "value"} <= keys or ("role" in keys and keys & {"content", "tool_calls"}) for keys in turns)


def _json(path: Path, missing: tuple[str, ...] | None) -> Guess | str:
    content = open_bytes(path)
    if content.find(b'"paragraphs"') >= 0 and content.find(b'"qas"') >= 0:
        return Guess("answer", ("data.kind=questions", setting("data.path", path)), ("questions in SQuAD's format",))
    if all(content.find(key) >= 0 for key in (b'"annotations"', b'"categories"', b'"bbox"')):
        return "it has boxes in COCO's format; give its folder, with the images beside it"
    if not PIECES.match(bytes(content[:1000])) and (entries := json_entries(path)) is not None:
        records = [entry for entry in entries[:ROWS] if isinstance(entry, dict)]
        return _records(path, records, len(entries), missing) if records else "it is a list of no objects"
    if PIECES.match(bytes(content[:1000])):
        seen = ("pieces of music as chords of MIDI numbers",)
        return Guess("music", ("data.kind=scores", setting("data.path", path)), seen)
    return "it is JSON in no format that is known; write one object per line (.jsonl)"


def _tags(path: Path, what: str, encoding: str) -> Guess:
    lines = Lines(path, encoding, False)
    tags = Counter(cells[-1] for line in _first(lines) if len(cells := line.split()) > 1)
    listed = ", ".join(tag for tag, _ in tags.most_common(6)) + (" …" if len(tags) > 6 else "")
    metric = () if scheme_of(tags) != "plain" else ("training.metric=accuracy",)
    seen = [f"{what}, {counted(len(lines), 'line')}"]
    if not bare_name(path).endswith(".conllu"):
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
    if "\t" in some[0] and sum("\t" in line for line in some) > 0.9 * len(some):
        return _table(path, "tsv", how)
    if all("," in line and all(map(is_number, line.split(","))) for line in some):
        return _table(path, "csv", how)
    classes = Counter(row[0] for row in words if len(row) > 1)
    enough = 1 < len(classes) <= MOST_CLASSES and sum(classes.values()) == len(some) > 20 * len(classes)
    if enough and not any(name.isalpha() and not name.isupper() for name in classes):  # 1, LOC or __label__good
        listed = ", ".join(f"{name} ({n:,})" for name, n in classes.most_common(6))
        settings = ("data.kind=labelled", setting("data.path", path))
        return Guess("classify", settings, (f"a label and a text on each of {len(lines):,} lines: {listed}",))
    return Guess("lm", (setting("data.path", path),), (f"plain text, {counted(len(lines), 'line')}",))
