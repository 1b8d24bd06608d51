"""Sounds with transcripts: tables that name sound files, LibriSpeech's folders, and folders of NAME.wav with NAME.txt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any, ClassVar, NamedTuple

from ...core.spec import brief
from ..files.inside import inside
from ..files.json_lines import json_value
from ..files.text_files import NamedRecords
from ..media.image_files import is_wanted, stamp_of
from ..shuffle import text_hash
from ..source import Example, Skipped, Split, Table, note_on_other_splits
from ..tables import ComputedTable
from .audio import SUFFIXES

_SOUNDS = ("audio", "path", "file", "file_name", "filename", "audio_filepath", "wav", "sound")
_TEXTS = ("text", "sentence", "transcript", "transcription", "transcripts")
_CLIPS = "clips"  # Common Voice's folder beside its tables


class Transcripts(NamedRecords, kind="transcripts"):
    """Sounds with their transcripts, in a table or in a folder. A sound is decoded when a task reads it.

    A table is JSONL, CSV, TSV or Parquet, one recording in a row: a path and a text. Parquet may hold the sounds
    themselves, as the library `datasets` writes them. Common Voice's TSV files are such tables, with the sounds in `clips`.
    A folder has files `….trans.txt`, each line an utterance's name and its text (LibriSpeech), or a NAME.txt beside each
    NAME.wav (.flac, .mp3 …).

    sounds:      the folder with the sounds of a table; by default its own, or `clips` in it. Files outside aren't read.
    audio_field: the column with the path; by default `audio`, `path`, `file` or a similar name.
    text_field:  the column with the text; by default `text`, `sentence`, `transcript` or a similar name.
    """

    path_fields: ClassVar[tuple[str, ...]] = ("path", "validation_path", "test_path", "sounds")

    expects: ClassVar[str] = "a table with a path and a text in each row, or a folder of sounds with transcripts"

    sounds: str | None = None
    audio_field: str | None = None
    text_field: str | None = None

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("soundfile",)

    def notes(self) -> tuple[str, ...]:
        folders = [path for path in self.paths("train") if path.is_dir()]
        if not folders:
            return super().notes()
        return tuple(
            note_on_other_splits(
                [PurePath(pair.file) for path in folders for pair in _pairs(path, stamp_of(path)) if pair.file]
            )
        )

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        """All recordings of a text are held out together."""
        return text_hash(example["text"])

    def open(self, split: Split) -> Table:
        path = self.paths(split)[0]
        if path.is_dir():
            pairs = _pairs(path, stamp_of(path))
            return ComputedTable(len(pairs), lambda i: _placed(path, pairs[i]))
        folder = path.parent if self.sounds is None else Path(self.sounds).expanduser()
        return self.records(path, lambda record, where: self.example(record, folder, where))

    def example(self, record: object, folder: Path, where: str) -> Example | Skipped:
        """The example in a row, or why it is skipped. Raises ValueError if the columns are missing."""
        name = self._value(record, self.audio_field, _SOUNDS, "audio_field", where)
        text = self._value(record, self.text_field, _TEXTS, "text_field", where)
        if not isinstance(text, str) or not text.strip():
            return Skipped("with an empty transcript", where)
        if isinstance(name, Mapping):  # as `datasets` writes sounds
            if isinstance(name.get("bytes"), bytes):
                return {"audio": name["bytes"], "text": text.strip(), "where": where}
            name = name.get("path")
        if isinstance(name, bytes):
            return {"audio": name, "text": text.strip(), "where": where}
        if not isinstance(name, str) or not name.strip():
            return Skipped("without a sound", where)
        file = self._file(folder, name, where)
        return (
            {"audio": file, "text": text.strip(), "where": where} if file else Skipped("whose sound is missing", where)
        )

    def _file(self, folder: Path, name: str, where: str) -> Path | None:
        """The file with a name; None if there is none. Raises ValueError for one outside of the folder."""
        places = [folder] if self.sounds is not None else [folder, folder / _CLIPS]
        for place in places:
            file = inside(place, name, where, "data.sounds=FOLDER names another")
            if file.is_file():
                return file
        return None

    def _value(self, record: Any, field: str | None, usual: Sequence[str], setting: str, where: str) -> Any:
        names = usual if field is None else (field,)
        for name in names:
            value = json_value(record, name)
            if value is not None:
                return value
        columns = ", ".join(map(str, record)) if isinstance(record, Mapping) else ""
        if field is None and any(name in record for name in usual if isinstance(record, Mapping)):
            return None  # the column is there, and empty in this row
        wanted = brief(field) if field is not None else f"{', '.join(usual[:3])} …"
        raise ValueError(f"{where}, has no column {wanted}; it has {columns or 'none'}; give data.{setting}=COLUMN")


class _Pair(NamedTuple):
    """A recording's file, relative to its folder, its transcript, and where that is; `reason` says why it is skipped."""

    file: str
    text: str
    where: str
    reason: str = ""


def _placed(folder: Path, pair: _Pair) -> Example | Skipped:
    if pair.reason:
        return Skipped(pair.reason, pair.where)
    file = inside(folder, pair.file, pair.where)
    if not file.is_file():
        return Skipped("whose sound is missing", pair.where)
    return {"audio": file, "text": pair.text, "where": pair.where}


@lru_cache(maxsize=8)
def _pairs(folder: Path, stamp: tuple[int, int]) -> list[_Pair]:
    """The recordings below a folder. Raises ValueError if there are none, or if a transcript is not in UTF-8."""
    lists = sorted(folder.rglob("[!.]*.trans.txt"))
    pairs = list(_listed(folder, lists)) if lists else list(_beside(folder))
    if not any(not pair.reason for pair in pairs):
        found = f", and {len(pairs):,} of something else" if pairs else ""
        raise ValueError(
            f"{brief(folder)} has no sound with a transcript{found}; a folder has NAME.txt beside each NAME.wav, or "
            "LibriSpeech's files ….trans.txt"
        )
    return pairs


def _listed(folder: Path, lists: Sequence[Path]) -> Iterator[_Pair]:
    """The utterances of LibriSpeech's lists: `84-121123-0000 GO DO YOU HEAR` is 84-121123-0000.flac in the same folder."""
    for path in lists:
        place, sounds = path.parent.relative_to(folder), _by_stem(path.parent)
        for number, line in enumerate(_text(path).splitlines(), 1):
            name, _, text = line.strip().partition(" ")
            if name:
                where = f"{str(path)!r}, line {number:,}"
                file = sounds.get(name, f"{name}.flac")
                yield _Pair((place / file).as_posix(), text.strip(), where, "" if text.strip() else _EMPTY)


_EMPTY = "with an empty transcript"


def _beside(folder: Path) -> Iterator[_Pair]:
    """The sounds below a folder that have a text file of the same name, and those that haven't."""
    places = sorted({path.parent for path in folder.rglob("*") if is_wanted(path.name, SUFFIXES) and path.is_file()})
    for place in places:
        for stem, name in _by_stem(place).items():
            file, texts = place / name, place / f"{stem}.txt"
            if not texts.is_file():
                yield _Pair("", "", str(file), "without a transcript (a .txt beside it)")
                continue
            text = " ".join(_text(texts).split())
            yield _Pair(file.relative_to(folder).as_posix(), text, str(file), "" if text else _EMPTY)


def _by_stem(folder: Path) -> dict[str, str]:
    """The sounds in a folder, by their names without suffixes."""
    names = sorted(path.name for path in folder.iterdir() if is_wanted(path.name, SUFFIXES))
    return {name.rpartition(".")[0]: name for name in names}


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{brief(path)} is not in UTF-8; convert it first") from None
    except OSError as error:
        raise ValueError(f"{brief(path)} can't be read: {error.strerror}") from None
