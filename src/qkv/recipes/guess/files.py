"""Guess a recipe for a file: a table, JSON, CoNLL, FASTA, MIDI, or text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...core.spec import counted
from ...data.files.compressed import bare_name, open_bytes
from ...data.files.csv_tsv import Cells, Form
from ...data.files.json_lines import json_entries, json_object
from ...data.files.lines import Lines
from ...data.files.parquet import SUFFIX, ParquetRows
from .result import Guess
from .tables import ROWS, Column, is_number, of_columns

PIECES = re.compile(rb'\s*(\{\s*"\w+"\s*:\s*)?\[\s*\[\s*\[')  # of music: lists of lists of chords
BEGINNING = 1 << 20  # bytes that show the encoding
MOST_CLASSES = 40  # of a file with a label and a text on each line


def of_file(path: Path) -> Guess | str:
    """Guess a recipe for a file, or return what was seen if nothing fits. Text that is not UTF-8 is read as Latin-1."""
    if path.suffix == SUFFIX:
        rows = ParquetRows(path)
        return _records(path, [rows[i] for i in range(min(len(rows), ROWS))], len(rows))
    if _is_utf8(bytes(open_bytes(path)[:BEGINNING])):
        return _in_encoding(path, "utf-8")
    found = _in_encoding(path, "latin-1")
    if isinstance(found, str):
        return found
    seen = (*found.seen, "it is not UTF-8 and is read as Latin-1 (data.encoding)")
    return replace(found, settings=(*found.settings, "data.encoding=latin-1"), seen=seen)


def _is_utf8(beginning: bytes) -> bool:
    """Whether bytes are UTF-8, up to a character that is cut at the end; UTF-16 is for its reader to tell."""
    try:
        beginning.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(beginning) - 4 or beginning[:2] in (b"\xff\xfe", b"\xfe\xff")
    return True


def _in_encoding(path: Path, encoding: str) -> Guess | str:
    name = bare_name(path).lower()
    if name.endswith((".csv", ".tsv")):
        return _table(path, "csv" if name.endswith(".csv") else "tsv", encoding)
    if name.endswith((".jsonl", ".ndjson")):
        return _json_lines(path, encoding)
    if name.endswith(".json"):
        return _json(path)
    if name.endswith((".mid", ".midi")):
        return Guess("music", ("data.kind=scores", f"data.path={path}", "data.steps=4"), ("a MIDI file",))
    if name.endswith((".fasta", ".fa", ".faa")):
        return "it is FASTA, whose labels are in another file (qkv train protein data.kind=fasta data.labels=…)"
    if name.endswith((".conll", ".conllu", ".bio", ".iob")):
        return _tags(path, "a file of words and tags", encoding)
    return _text(path, encoding)


def _table(path: Path, form: Form, encoding: str) -> Guess | str:
    cells = Cells(path, form, encoding, strict=False)
    names, rows = cells.names(None), []
    for i in range(bool(names), min(len(cells), ROWS)):
        try:
            rows.append(cells[i])
        except ValueError:  # a bad row is the training's business
            continue
    rows = [row for row in rows if row]
    if not names and rows and _is_heading(rows):
        names, rows = tuple(cell.strip() for cell in rows[0]), rows[1:]
    columns = [
        Column(names[i] if i < len(names) else i, [row[i].strip() for row in rows if i < len(row)])
        for i in range(cells.width)
    ]
    more = () if Path(bare_name(path)).suffix in (".csv", ".tsv") else (f"data.format={form}",)
    return of_columns(path, columns, len(cells) - bool(names), more, table=True)


def _is_heading(rows: list[list[str]]) -> bool:
    """Whether the first row names columns of numbers: it has none, and all below it are numbers but for a first column."""
    return (
        not any(map(is_number, rows[0])) and len(rows) > 1 and all(all(map(is_number, row[1:])) for row in rows[1:50])
    )


def _json_lines(path: Path, encoding: str) -> Guess | str:
    lines = Lines(path, encoding, False)
    records: list[dict[str, Any]] = []
    for i in range(min(len(lines), ROWS)):
        if lines[i].strip() and isinstance(record := json_object(lines[i], lines.where(i)), dict):
            records.append(record)
    return _records(path, records, len(lines))


def _records(path: Path, records: list[dict[str, Any]], count: int) -> Guess | str:
    """Guess a recipe for `count` records, of which these are the first."""
    fields = list(dict.fromkeys(name for record in records for name in record))
    kept = {name: [record[name] for record in records if record.get(name) is not None] for name in fields}
    for name in fields:
        if kept[name] and all(_is_conversation(value) for value in kept[name]):
            usual = name == "messages" or (name == "conversations" and "messages" not in fields)
            settings = (f"data.path={path}", *(() if usual else (f"data.messages={name}",)))
            return Guess("chat", settings, (f"{counted(count, 'line')}; {name!r} holds conversations",))
    if {"instruction", "output"} <= set(fields):
        return Guess(
            "chat", (f"data.path={path}",), (f"{counted(count, 'line')} in Alpaca's format, with instructions",)
        )
    if {"context", "question", "answer"} <= set(fields):
        settings = ("data.kind=questions", f"data.path={path}")
        return Guess("answer", settings, (f"{counted(count, 'question')} about texts, with their answers",))
    lists = [name for name in fields if all(isinstance(value, list) for value in kept[name])]
    if lists and "answer" in fields:
        text = next((name for name in fields if name not in (lists[0], "answer")), "text")
        settings = ("data.kind=choices", f"data.path={path}", f"data.text={text}", f"data.choices=[{lists[0]}]")
        return Guess("choose", settings, (f"{counted(count, 'line')}; {lists[0]!r} holds candidates",))
    columns = [
        Column(name, [str(value) for value in kept[name] if isinstance(value, str | int | float)]) for name in fields
    ]
    return of_columns(path, columns, count, (), table=False)


def _is_conversation(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    turns = [set(turn) if isinstance(turn, dict) else set() for turn in value]
    return all({"from", "value"} <= keys or ("role" in keys and keys & {"content", "tool_calls"}) for keys in turns)


def _json(path: Path) -> Guess | str:
    content = open_bytes(path)
    if content.find(b'"paragraphs"') >= 0 and content.find(b'"qas"') >= 0:
        return Guess("answer", ("data.kind=questions", f"data.path={path}"), ("questions in SQuAD's format",))
    if all(content.find(key) >= 0 for key in (b'"annotations"', b'"categories"', b'"bbox"')):
        return "it has boxes in COCO's format; give its folder, with the images beside it"
    if not PIECES.match(bytes(content[:1000])) and (entries := json_entries(path)) is not None:
        records = [entry for entry in entries[:ROWS] if isinstance(entry, dict)]
        return _records(path, records, len(entries)) if records else "it is a list of no objects"
    if PIECES.match(bytes(content[:1000])):
        return Guess("music", ("data.kind=scores", f"data.path={path}"), ("pieces of music as chords of MIDI numbers",))
    return "it is JSON in no format that is known; write one object per line (.jsonl)"


def _tags(path: Path, what: str, encoding: str) -> Guess:
    lines = Lines(path, encoding, False)
    tags = Counter(cells[-1] for line in _first(lines) if len(cells := line.split()) > 1)
    listed = ", ".join(tag for tag, _ in tags.most_common(6)) + (" …" if len(tags) > 6 else "")
    metric = () if any(tag[:2] in ("B-", "I-", "S-") for tag in tags) else ("training.metric=accuracy",)
    seen = [f"{what}, {counted(len(lines), 'line')}"]
    if not bare_name(path).endswith(".conllu"):
        seen.append(f"the tag is in the last column: {listed} (data.tag=N for another)")
    return Guess("tag", ("data.kind=columns", f"data.path={path}", *metric), tuple(seen))


def _first(lines: Lines) -> Iterator[str]:
    yield from (lines[i] for i in range(min(len(lines), ROWS)))


def _text(path: Path, encoding: str) -> Guess | str:
    lines = Lines(path, encoding, False)
    some = [line for line in _first(lines) if line.strip()]
    if not some:
        return "it is empty"
    words = [line.split() for line in some]
    width = Counter(map(len, words)).most_common(1)[0]
    if width[1] > 0.95 * len(some) and width[0] in range(2, 12) and len(some) < min(len(lines), ROWS):
        labels = {row[-1] for row in words}
        if len(labels) < len(some) / 3:
            return _tags(path, f"{width[0]} columns, with empty lines between sentences", encoding)
    if "\t" in some[0] and sum("\t" in line for line in some) > 0.9 * len(some):
        return _table(path, "tsv", encoding)
    if all("," in line and all(map(is_number, line.split(","))) for line in some):
        return _table(path, "csv", encoding)
    classes = Counter(row[0] for row in words if len(row) > 1)
    enough = 1 < len(classes) <= MOST_CLASSES and sum(classes.values()) == len(some) > 20 * len(classes)
    if enough and not any(name.isalpha() and not name.isupper() for name in classes):  # 1, LOC or __label__good
        listed = ", ".join(f"{name} ({n:,})" for name, n in classes.most_common(6))
        settings = ("data.kind=labelled", f"data.path={path}")
        return Guess("classify", settings, (f"a label and a text on each of {len(lines):,} lines: {listed}",))
    return Guess("lm", (f"data.path={path}",), (f"plain text, {counted(len(lines), 'line')}",))
