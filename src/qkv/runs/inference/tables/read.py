"""Tables as inputs and outputs of a run: CSV, TSV, JSON Lines, Parquet, FASTA, text files, folders of pictures and sounds.

A file is read with all of its columns; some of them are the inputs, and the results become further columns beside them.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ....core.spec import brief, counted
from ....data.file_kinds import is_hidden, markup, other_kind, other_table, without_marks
from ....data.files.compressed import open_bytes, suffix_of
from ....data.files.csv_dialect import USUAL, filled
from ....data.files.csv_header import Heading, short
from ....data.files.csv_tsv import Cells, Form
from ....data.files.encodings import BEGINNING, guessed_encoding, nul_note, open_text, said_of
from ....data.files.json_lines import holds_json, json_value
from ....data.files.lines import Lines
from ....data.files.parquet import ParquetRows
from ....data.files.records import FORMATS, Format, RecordFormat, Records, open_records
from ....data.media.image_files import SUFFIXES as IMAGES
from ....data.media.video import SUFFIXES as VIDEOS
from ....data.readers import fasta
from ....data.readers.audio import SUFFIXES as SOUNDS
from ....data.source import Skipped
from ...tasks.prediction import Line
from ..loaded import LoadedModel
from .columns import choose, files_of, found, reads_files, reads_numbered

UTF_8 = ("utf-8", "utf8", "utf-8-sig")

LINES = (".txt", ".text")  # files whose lines are texts
_OTHER = (
    ".json .xlsx .xls .xlsm .xlsb .ods .odt .arrow .feather .orc .pkl .pickle .npy .npz .pdf .docx .doc .rtf .pptx .epub "
    ".ipynb .zip .tar .gz .bz2 .xz .zst .7z .rar .h5 .hdf5 .hdf .dta .sav .sas7bdat .xpt .db .sqlite .safetensors .bin .pt "
    ".pth .gguf .html .htm .xml"
)
OTHER_TABLES = frozenset(_OTHER.split())
"""Endings of files that hold texts or numbers in ways that are not read here."""

Row = Mapping[str, Any]
_SEEN, _MOSTLY = 1000, 0.9  # lines of a .txt that show a table, and the part of them with as many cells as the first


@dataclass(frozen=True)
class FileTable:
    """The rows of a file.

    names:   the columns, in the order of the file.
    rows:    each row by column.
    inputs:  what the run reads of each row; "" if a cell that it reads is empty.
    where:   the file and line of each row, for messages.
    columns: the columns that are read.
    notes:   sentences for the user about how the file was read.
    """

    path: Path
    names: tuple[str, ...]
    rows: Sequence[Row]
    inputs: Sequence[str]
    where: Sequence[str]
    columns: tuple[str, ...]
    notes: tuple[str, ...] = ()
    delimiter: str = ","


def names_a_file(path: Path) -> bool:
    """Whether a name has the ending of a table, plain or compressed, of a picture, a sound or a video, or of another file
    of data."""
    return is_table(path) or path.suffix.lower() in (OTHER_TABLES | IMAGES | SOUNDS | VIDEOS)


def is_table(path: Path) -> bool:
    """Whether a file's name is that of a table, of sequences or of lines of text, plain or compressed."""
    return suffix_of(path) in (*FORMATS, *LINES, *fasta.SUFFIXES)


def ends_in(path: Path, suffixes: Collection[str]) -> bool:
    """Whether a file has one of the suffixes, plain or, for tables, compressed."""
    return path.suffix.lower() in suffixes or (is_table(path) and suffix_of(path) in suffixes)


def read_folder(folder: Path, run: LoadedModel) -> FileTable:
    """The pictures, sounds or videos below a folder as a table of one column. Raises ValueError if there are none."""
    suffixes, noun = files_of(run)
    below = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    below = [file for file in below if not is_hidden(file.relative_to(folder))]
    files = [file for file in below if ends_in(file, suffixes)]
    if not files:
        raise ValueError(f"there is no {noun} in {brief(folder)}; this run reads {', '.join(sorted(suffixes))}")
    names = [str(file) for file in files]
    others = f" ({counted(len(below) - len(files), 'other file')} left out)" if len(below) > len(files) else ""
    rows = [{"file": name} for name in names]
    return FileTable(
        folder, ("file",), rows, names, names, ("file",), (f"{counted(len(names), noun)} in {folder}{others}",)
    )


def read_table(path: Path, run: LoadedModel, command: str, chosen: Sequence[str] = ()) -> FileTable:
    """The rows of a file as inputs of a run for a command. `chosen` names the columns that the run reads, in its order;
    by default they have the names of its training data, or usual names.

    Raises ValueError, naming file and line, for a file that can't be read, and for columns that are not there.
    """
    if suffix_of(path) in fasta.SUFFIXES:
        return _sequences(path, chosen)
    encoding, notes = _encoding(path, run)
    form = _form(path, encoding)
    if form == "lines" and _is_tabular(path, encoding, run, command, chosen):
        form = "csv"
        notes = (*notes, f"{path.name} holds a table, whatever its name says, and is read as such")
    if form == "lines":
        return _lines(path, encoding, notes, chosen)
    if form == "jsonl" and FORMATS.get(suffix_of(path)) != form:
        notes = (*notes, f"{path.name} holds JSON, whatever its name says, and is read as such")
    records, names, cells = _records(path, RecordFormat(form, encoding), run, command, chosen)
    if again := sum(isinstance(row, Skipped) for _, row in records.rows):
        records = replace(records, rows=[one for one in records.rows if not isinstance(one[1], Skipped)])
        notes = (*notes, f"{counted(again, 'row')} with the column names again left out")
    if cells is not None and cells.quotes != USUAL:
        notes = (*notes, f"the cells of {path.name} are {cells.quotes}, as its lines show")
    if cells is not None:
        notes = (
            *notes,
            *((cells.said_above(path.name),) if cells.above else ()),
            *_decided(cells, run, command, chosen),
        )
    if form != "parquet" and (nul := nul_note(path, open_text(path, encoding))) is not None:
        notes = (*notes, nul)
    rows = [_row(records, names, i) for i in range(len(records))]
    columns = choose(run, command, path, names, rows, chosen)
    if cells is not None:
        numbered = [int(name) if name.isdecimal() and not records.names else name for name in columns]
        short_rows = cells.short_rows(records.names)
        notes = (
            *notes,
            *cells.odd(records.names, numbered),
            *((f"{short_rows}; missing cells are empty",) if short_rows else ()),
        )
    folder = path.parent if reads_files(run) else None
    inputs = [_input(row, columns, folder, records.where(i)) for i, row in enumerate(rows)]
    read = f"{counted(len(rows), 'row')} of {path.name}; reading {' and '.join(map(repr, columns))}"
    more = "" if chosen else _others(names, columns)
    where = tuple(records.where(i) for i in range(len(rows)))
    delimiter = "," if cells is None else cells.delimiter
    return FileTable(path, names, rows, inputs, where, columns, (read + more, *notes), delimiter)


def read_lines(path: Path) -> FileTable:
    """The lines of a file of any name as texts."""
    return _lines(path, *_encoding(path, None), ())


def _others(names: Sequence[str], columns: Sequence[str]) -> str:
    others = [name for name in names if name not in columns]
    return f" (--column NAME for another: {', '.join(short(others)[:8])})" if others else ""


def _encoding(path: Path, run: LoadedModel | None) -> tuple[str, tuple[str, ...]]:
    """UTF-8, or for another file the encoding of the run's training data, or a guessed one, with a note. Raises ValueError
    if it can't be told."""
    if path.suffix.lower() == ".parquet":
        return "utf-8", ()
    content = bytes(open_bytes(path))
    if (kind := (other_kind if _is_lines(path) else other_table)(path, content)) is not None:
        raise ValueError(kind)
    marked = markup(path, content) if _is_lines(path) else None
    notes = (
        () if marked is None else (f"{path.name} is {marked}, whose tags are read, too; {without_marks(path, marked)}",)
    )
    own = getattr(run.recipe.data, "encoding", "utf-8") if run is not None and run.recipe is not None else "utf-8"
    try:
        name = guessed_encoding(content)
        if name in ("ascii", "utf-8"):
            return "utf-8", notes
    except ValueError as error:
        if own.lower() in UTF_8:
            raise ValueError(f"{path.name}: {error}") from None
        name = own
    if own.lower() not in (*UTF_8, "latin-1", "latin1", "iso-8859-1"):
        name = own
    why = "as the training data were" if name == own else "which is a guess"
    said = said_of(content[:BEGINNING], name).replace(" with data.encoding=", " in ")
    return name, (
        *notes,
        f"{path.name} is not UTF-8 and is read as {name}, {why}: {said} (save it as UTF-8 if that is wrong)",
    )


def _lines(path: Path, encoding: str, notes: tuple[str, ...], chosen: Sequence[str]) -> FileTable:
    if chosen:
        raise ValueError(f"{path} is a file of lines, which has no columns; leave out --column {chosen[0]}")
    lines = Lines(path, encoding).check_ends()
    texts = [lines[i] for i in range(len(lines))]
    where = [f"{str(path)!r}, line {i:,}" for i in range(1, len(texts) + 1)]
    note = f"{counted(len(texts), 'line')} of {path.name}, each a text"
    return FileTable(path, ("text",), [{"text": text} for text in texts], texts, where, ("text",), (note, *notes))


def _sequences(path: Path, chosen: Sequence[str]) -> FileTable:
    """The sequences of a FASTA file, each a text beside its name."""
    if chosen and tuple(chosen) != ("sequence",):
        raise ValueError(
            f"{path} is a FASTA file, and its only input column is 'sequence'; leave out --column {chosen[0]}"
        )
    records = fasta.records(str(path))
    texts = [record.symbols for record in records.values()]
    rows = [{"name": name, "sequence": text} for name, text in zip(records, texts, strict=True)]
    where = [f"{str(path)!r}, line {record.line:,}" for record in records.values()]
    note = f"{counted(len(rows), 'sequence')} of {path.name}"
    return FileTable(path, ("name", "sequence"), rows, texts, where, ("sequence",), (note,))


def _is_lines(path: Path) -> bool:
    return suffix_of(path) in LINES


def _form(path: Path, encoding: str) -> Format:
    """How a file is read: by its name, unless it holds JSON."""
    form = "lines" if _is_lines(path) else FORMATS.get(suffix_of(path), "csv")
    return "jsonl" if form != "parquet" and holds_json(path, encoding) else form


def _is_tabular(path: Path, encoding: str, run: LoadedModel, command: str, chosen: Sequence[str]) -> bool:
    """Whether the lines of a file are a table's, as training reads it: the first names a column that the run reads, or the
    run was trained on columns by number, and nearly all lines have as many cells as the first."""
    cells = RecordFormat("csv", encoding, strict=False).cells(path, "csv")
    if len(cells) < 2 or (width := len(cells[0])) < 2:
        return False
    first = [cell.strip() for cell in cells[0]]
    named = any(found(run, command, first).values()) or (bool(chosen) and set(chosen) <= set(first))
    if not named and not (cells.delimiter == "\t" and reads_numbered(run, command)):
        return False
    seen = [len(cells[i]) == width for i in range(min(len(cells), _SEEN))]
    return sum(seen) >= _MOSTLY * len(seen)


def _records(
    path: Path, how: RecordFormat, run: LoadedModel, command: str, chosen: Sequence[str]
) -> tuple[Records, tuple[str, ...], Cells | None]:
    """The records of a table, its columns, and the rows of a CSV or TSV."""
    form = how.form(path)
    if form == "parquet":
        return open_records(path, (), how), tuple(ParquetRows(path).names), None
    if form == "jsonl":
        records = open_records(path, (), how)
        return records, tuple(dict.fromkeys(name for _, row in records.rows for name in row)), None
    at: Form = "tsv" if form == "tsv" else "csv"
    how = replace(how, quotes=replace(how, strict=False).cells(path, at).other_quotes or USUAL)
    cells = how.cells(path, at)
    if not len(cells):
        raise ValueError(f"{brief(path)} holds no rows: all of its lines are empty")
    header = replace(how, header=_header(cells, run, command, chosen))
    records = open_records(path, (), header)
    names = records.names or tuple(map(str, range(cells.width)))
    if names.count("") > 1:
        names = tuple(name or f"Unnamed: {i}" for i, name in enumerate(names))  # as in pandas
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{brief(path)} has two columns named {brief(twice)}; give them different names")
    for i, (_, row) in enumerate(records.rows):
        if not isinstance(row, Skipped) and filled(row) > len(names):
            raise ValueError(
                f"{records.where(i)} has {filled(row)} cells, and the table has {len(names)} columns; quote cells that hold "
                f"a {brief(cells.delimiter)}"
            )
    return records, names, cells


def _header(cells: Cells, run: LoadedModel, command: str, chosen: Sequence[str]) -> bool | None:
    """Return True if the first row contains names of columns that the run reads, False if columns are chosen by number, and
    None if the contents of its cells decide."""
    first = [cell.strip() for cell in cells[0]]
    if any(not name.isdecimal() for name in chosen) or any(found(run, command, first).values()):
        return True
    return False if chosen and not set(chosen) & set(first) else None


def _decided(cells: Cells, run: LoadedModel, command: str, chosen: Sequence[str]) -> Iterator[str]:
    """Yield notes on what was inferred from the cells: whether the first row holds names, and whether marks quote cells."""
    header, heading = _header(cells, run, command, chosen), cells.heading
    if header is None or (header is False and heading.names):
        decided = heading if header is None else Heading((), "columns are chosen by number", False)
        name = next((cell.strip()[:60] for cell in cells[0] if cell.strip()), "NAME")
        yield decided.note(cells.path.name, cells.line(0), "--column 0", f"--column {shlex.quote(name)}")
    if cells.marked and not cells.quoted:
        yield f"the quotation marks around cells of {cells.path.name} are read as text: its lines are not quoted as in CSV"


def _row(records: Records, names: tuple[str, ...], i: int) -> Row:
    row = records.rows[i][1]
    return row if isinstance(row, dict) else {name: row[n] if n < len(row) else "" for n, name in enumerate(names)}


def _input(row: Row, columns: Sequence[str], folder: Path | None, where: str) -> str:
    """What a run reads of a row: "" if a cell is empty. A list in a cell is several texts, such as candidates. Raises
    ValueError for a cell that is an object or bytes."""
    parts: list[str] = []
    for number, name in enumerate(columns):
        value = row[name] if name in row else json_value(dict(row), name)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Mapping | bytes):
                what = (
                    "bytes"
                    if isinstance(item, bytes)
                    else f"an object, {brief(item)}; --column {name}.FIELD reads a field"
                )
                raise ValueError(f"{where}: {brief(name)} is no text but {what}")
            text = "" if item is None else item if isinstance(item, str) else str(item)
            parts.append(str(folder / text) if folder is not None and number == 0 and text.strip() else text)
    return Line(tuple(parts)) if all(part.strip() for part in parts) else ""
