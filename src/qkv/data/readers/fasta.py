"""FASTA files: protein or DNA sequences, with labels per residue such as the secondary structure."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Hashable
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

from pydantic import model_validator

from ...core.spec import brief, counted
from ..files.compressed import open_bytes
from ..holdout import HoldOutSource
from ..source import SPLITS, Example, Skipped, Split, Table

SUFFIXES = (".fasta", ".fa", ".faa", ".fna")  # what files with sequences are called
_LARGEST = 1 << 30  # bytes of a file in an archive; a larger one has to be unpacked, so it is memory-mapped
_COUNTED, _HIDDEN = "1", "0"
_NUMBERED = re.compile(r"\s*\d+\s+[^\W\d]")
_SETS: dict[str, Split] = {
    "TRAIN": "train",
    "TRAINING": "train",
    "TEST": "test",
    **dict.fromkeys(("VALIDATION", "VALID", "VAL", "DEV"), "validation"),
}


class Fasta(HoldOutSource, kind="fasta"):
    """Sequences of a FASTA file: a header `>name …`, then the symbols, on one line or several.

    labels: a FASTA file with a label for each symbol, by the names in the headers. Without one, sequences are plain text.
    mask:   a FASTA file with a 1 for each symbol whose label counts and a 0 for the others (residues that no experiment
            could resolve).
    shortest: minimum number of symbols in a sequence; shorter ones are skipped.

    Blanks between symbols and comments (lines that begin with `;`) are left out.

    `SET=train`, `SET=validation`, `SET=test` and `VALIDATION=True` in a header of the labels (of the sequences, without
    labels) assign a sequence to a split (FLIP, Dallago et al. 2021). A split that no header names is held out. A file may
    be in an archive: `splits.zip/splits/sequences.fasta`.
    """

    path_fields: ClassVar[tuple[str, ...]] = ("path", "labels", "mask")

    path: str | None = None
    labels: str | None = None
    mask: str | None = None
    shortest: int = 2

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.mask is not None and self.labels is None:
            raise ValueError("mask says which labels count, so give labels too")
        return self

    def gives(self, split: Split) -> bool:
        return bool(self._members[split]) and split != "train"

    def open(self, split: Split) -> Table:
        return _Sequences(self, self._members[split])

    def stamp(self) -> tuple[Hashable, ...]:
        files = [_file(name)[0] for name in (self._path, self.labels, self.mask) if name]
        return self._path, *((stat.st_size, stat.st_mtime_ns) for stat in (file.stat() for file in files))

    @property
    def _path(self) -> str:
        if self.path is None:
            raise ValueError("no training data: give data.path, a FASTA file")
        return self.path

    @property
    def _members(self) -> dict[Split, tuple[str, ...]]:
        """The names of each split, by the headers of the labels. Sequences without labels have their own split
        header, so they are skipped and counted there."""
        sequences = records(self._path)
        labels = sequences if self.labels is None else records(self.labels)
        return _split(labels | {name: record for name, record in sequences.items() if name not in labels})


class Record(NamedTuple):
    """A FASTA record: the words after the name in its header, the symbols, and the line of the header."""

    about: tuple[str, ...]
    symbols: str
    line: int


def records(name: str) -> dict[str, Record]:
    """The records of a file by name. Raises ValueError with the line if the file is not FASTA."""
    path, member = _file(name)
    stat = path.stat()
    return _records(path, member, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=8)
def _records(path: Path, member: str, size: int, mtime_ns: int) -> dict[str, Record]:
    where = repr(str(path / member))
    lines = _lines(_content(path, member), where)
    records: dict[str, Record] = {}
    header, at, symbols = "", 0, list[str]()
    for n, line in enumerate([*lines, ">"], 1):
        if not line.startswith(">"):
            if not line.startswith(";"):  # a comment
                symbols.append(_symbols(line, f"{where}, line {n:,}", at > 0))
            continue
        if at:
            name, *about = header.split() or [""]
            if not name or name in records:
                problem = f"the name {brief(name)} occurs twice" if name else "a header without a name"
                raise ValueError(f"{where}, line {at:,}: {problem}")
            records[name] = Record(tuple(about), "".join(symbols), at)
        header, at, symbols = line[1:], n, []
    if not records:
        raise ValueError(f"{where} has no sequence")
    return records


def _lines(content: bytes, where: str) -> list[str]:
    """The lines of a file: UTF-8, or Latin-1 in descriptions that are not."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(f"{where} is UTF-16, and FASTA is read as UTF-8; convert it: iconv -f utf-16 -t utf-8")
    if content.startswith((b"PK\x03\x04", b"\x1f\x8b")):
        raise ValueError(f"{where} is compressed; name a file in a .zip as ARCHIVE.zip/FILE, or unpack it")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return re.split(r"\r\n|\r|\n", text)


def _symbols(line: str, where: str, after_header: bool) -> str:
    """The symbols of a line without the blanks between them."""
    symbols = "".join(line.split())
    if symbols and not after_header:
        raise ValueError(f"{where}: a FASTA file begins with a header, >name, not with {line[:40]!r}")
    if not symbols.isascii() or "\0" in symbols:
        raise ValueError(f"{where}: symbols of FASTA are ASCII, and this line has {line[:40]!r}")
    if _NUMBERED.match(line):
        raise ValueError(
            f"{where} begins with a number, as lines of GenBank's files do: {line[:40]!r}; FASTA has symbols alone, so "
            "remove the numbers"
        )
    return symbols


def _file(name: str) -> tuple[Path, str]:
    """The path of a file, and "" or, if it is an archive, the member in it."""
    path = Path(name).expanduser()
    for place in path.parents:
        if place.suffix.lower() == ".zip" and place.is_file():
            return place, path.relative_to(place).as_posix()
    if not path.is_file():
        raise ValueError(f"there is no file {brief(path)}")
    return path, ""


def _content(path: Path, member: str) -> bytes:
    if not member:
        return bytes(open_bytes(path))
    try:
        with zipfile.ZipFile(path) as archive:
            size = archive.getinfo(member).file_size
            if size > _LARGEST:
                raise ValueError(
                    f"{brief(member)} in {brief(path)} is of {size:,} bytes; unpack it and give the file itself"
                )
            return archive.read(member)
    except KeyError:
        raise ValueError(f"{brief(path)} has no {brief(member)}") from None
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise ValueError(f"{brief(path)} can't be read as an archive: {error}") from None


def _split(records: dict[str, Record]) -> dict[Split, tuple[str, ...]]:
    """The names of the records of each split. Raises ValueError for an unknown `SET=` beside known ones."""
    members: dict[Split, list[str]] = {split: [] for split in SPLITS}
    unknown: list[str] = []
    for name, record in records.items():
        about = {word.upper() for word in record.about}
        said = next((word[4:] for word in about if word.startswith("SET=")), "TRAIN")
        split = _SETS.get(said)
        if split is None:
            unknown.append(f"line {record.line:,} ({name}): SET={said.lower()}")
        members["validation" if split != "test" and "VALIDATION=TRUE" in about else split or "train"].append(name)
    if unknown and (members["test"] or members["validation"]):
        raise ValueError(
            f"{counted(len(unknown), 'header')} with an unknown split, first {unknown[0]}; known are SET=train, "
            "SET=validation and SET=test"
        )
    return {split: tuple(names) for split, names in members.items()}


class _Sequences:
    """Sequences by name, with their labels; a label that doesn't count is ""."""

    def __init__(self, spec: Fasta, names: tuple[str, ...]) -> None:
        self._names, self._spec = names, spec
        self._sequences = records(spec._path)
        self._labels = None if spec.labels is None else records(spec.labels)
        self._mask = None if spec.mask is None else records(spec.mask)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, i: int) -> Example | Skipped:
        name = self._names[i]
        if name not in self._sequences:
            return Skipped("with labels but without a sequence")
        sequence = self._sequences[name]
        where = f"{self._spec._path!r}, line {sequence.line:,} ({name})"
        text = sequence.symbols
        if len(text) < self._spec.shortest:
            return Skipped("too short")
        if self._labels is None:
            return {"text": text, "where": where}
        if name not in self._labels:
            return Skipped("without labels")
        labels = self._beside(self._labels, name, len(text), where, "labels")
        mask = self._beside(self._mask, name, len(text), where, "mask") if self._mask is not None else ""
        if set(mask) - {_COUNTED, _HIDDEN}:
            raise ValueError(f"{where}: a mask consists of 1 and 0, not of {''.join(sorted(set(mask)))[:20]!r}")
        tags = [
            label if mark == _COUNTED else "" for label, mark in zip(labels, mask or _COUNTED * len(text), strict=True)
        ]
        return {"text": text, "words": text, "tags": tags, "where": where}

    @staticmethod
    def _beside(records: dict[str, Record], name: str, size: int, where: str, what: str) -> str:
        """The symbols of another file for the same sequence."""
        if name not in records:
            raise ValueError(f"{where}: the {what} have no {brief(name)}")
        symbols = records[name].symbols
        if len(symbols) != size:
            raise ValueError(f"{where}: {size} symbols have {len(symbols)} in the {what}; there has to be one for each")
        return symbols
