"""Guess a recipe for a table that names pictures, sounds or videos."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ....core.spec import brief, counted
from ....data.files.csv_dialect import filled
from ....data.files.records import RecordFormat
from ....data.media.image_files import SUFFIXES as IMAGES
from ....data.media.image_files import names_of
from ....data.media.video import SUFFIXES as VIDEOS
from ....data.readers.audio import SUFFIXES as SOUNDS
from .column import Column
from .files import columns_of, encoding_of, in_another, is_text, is_utf8
from .folders import Listing, classified, filmed, heard_in, picture_sizes
from .result import Guess, setting
from .tables import ROWS, classes_in, label_and_score

_SHARE = 0.9  # of the cells of a column that name files
_TRIED = 20  # files that are looked for in a folder


def of_listed(path: Path, how: RecordFormat) -> Guess | str | None:
    """Guess a recipe for a table that names files, or return what was seen if nothing fits; None for another file."""
    if how.form(path) not in ("csv", "tsv"):
        return None
    if how.encoding == "utf-8" and not is_utf8(path):
        if not is_text(path):
            return None
        try:
            encoding = encoding_of(path)
        except ValueError:
            return None  # told by the guess for a file
        found = of_listed(path, replace(how, encoding=encoding))
        return None if found is None else in_another(path, encoding, found)
    cells = how.table(path)
    if cells is None or not len(cells):
        return None
    names = names_of(cells, how.header, frozenset((*IMAGES, *SOUNDS, *VIDEOS)))
    width = cells.columns(names)
    some = [(0, row) for row in cells.some(bool(names), min(len(cells), ROWS)) if row and filled(row) <= width]
    columns = columns_of(some, names, width, how.missing)
    for what, suffixes in (("picture", IMAGES), ("sound", SOUNDS), ("video", VIDEOS)):
        files = next((column for column in columns if _names_files(column, frozenset(suffixes))), None)
        if files is None:
            continue
        label, _ = label_and_score([column for column in columns if column is not files])
        if label is None and what == "sound" and (said := next((c for c in columns if c.is_text), None)) is not None:
            kind = ("data.kind=transcripts", setting("data.path", path))
            named = (setting("data.audio_field", files.name), setting("data.text_field", said.name))
            seen = f"{counted(len(cells) - bool(names), 'row')} that name sounds, in the column {files.name}"
            transcripts = f"{said.title} holds what is said ({brief(said.filled[0])})"
            return Guess("recognize-ctc", (*kind, *named), (seen, transcripts, *cells.notes(how.header, None)))
        if label is None:
            return f"its column {files.name} names {what}s, and no column holds their classes"
        notes = (*cells.notes(how.header, None), *cells.faults(names))
        return _classified(path, what, files, label, len(cells) - bool(names), notes)
    return None


def _names_files(column: Column, suffixes: frozenset[str]) -> bool:
    named = sum(PurePosixPath(cell).suffix.lower() in suffixes for cell in column.filled)
    return named > _SHARE * max(1, len(column.filled))


class _Reader(NamedTuple):
    recipe: str
    kind: str
    column: str
    folder: str


_READERS = {
    "picture": _Reader("vit", "images", "image_column", "images"),
    "sound": _Reader("speech", "sounds", "audio_column", "sounds"),
    "video": _Reader("video", "clips", "video_column", "videos"),
}


def _classified(path: Path, what: str, files: Column, label: Column, count: int, notes: tuple[str, ...]) -> Guess | str:
    """Guess a recipe for a table of pictures, sounds or videos with their classes."""
    reader, folder = _READERS[what], _folder_of(path, files)
    named = [setting(f"data.{reader.column}", files.name), setting("data.label_column", label.name)]
    settings: tuple[str, ...] = (f"data.kind={reader.kind}", setting("data.path", path), *named)
    if folder is None:
        return (
            f"its column {files.name} names {what}s, such as {brief(files.filled[0])}, and they are not in "
            f"{brief(str(path.parent))} or a folder beside it; name their folder: `qkv train {reader.recipe} "
            f"{' '.join(settings)} data.{reader.folder}=FOLDER`"
        )
    listing = Listing(folder, tuple(PurePosixPath(name) for name in files.filled if (folder / name).is_file()))
    if folder != path.parent:
        settings = (*settings, setting(f"data.{reader.folder}", folder))
    if what == "picture":
        more, about = classified(*picture_sizes(listing, list(listing.names)))
    elif what == "video":
        more, about = filmed(32, 3)
    elif (heard := heard_in(listing, list(listing.names))) is not None:
        more, about = heard
    else:
        return f"its column {files.name} names sounds, and none of the first in {brief(str(folder))} can be read"
    seen = f"{counted(count, 'row')} that name {what}s, in the column {files.name}"
    seen += "" if folder == path.parent else f"; they are in {folder}"
    return Guess(reader.recipe, (*settings, *more), (seen, classes_in(label), *label.lacking, about, *notes))


def _folder_of(path: Path, files: Column) -> Path | None:
    """Return the folder of the files that a table names: the table's own, one in it, or one beside it. Return None if the
    files are in none of these."""
    folders = [path.parent]
    for base in (path.parent, path.parent.parent):
        with suppress(PermissionError):
            folders += sorted(folder for folder in base.iterdir() if folder.is_dir())
    names = files.filled[:_TRIED]
    return next((one for one in folders if any((one / name).is_file() for name in names)), None)
