"""Reads and writes word vector files: word2vec text and binary format and GloVe format, plain or .gz.

word2vec text    a line `V E`, then V lines of a word and E numbers
word2vec binary  a line `V E`, then V times a word, a space and E little-endian fp32 numbers, perhaps a line end
GloVe            lines of a word and E numbers, without a header line
"""

from __future__ import annotations

import gzip
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import NDArray

from ...core import atomic, several
from ...core.spec import brief, nearest
from ..file_kinds import other_kind
from ..files.cache import Bytes
from ..files.compressed import open_bytes
from .word_vectors import Vectors

Form = Literal["word2vec", "binary", "glove"]

_PRINTABLE = bytes(range(0x20, 0x7F)) + b"\t\r"  # the only bytes in a line of written numbers
_LONGEST_LINE = 1 << 10  # bytes of a line that are inspected
_LONGEST_WORD = 1 << 12  # bytes
_NOT_WRITTEN = (".zst", ".xz", ".bz2", ".zip")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def read(path: str | Path, *, encoding: str = "utf-8", keep_first: bool = False) -> Vectors:
    """Read vectors from a file; its format is detected.

    encoding:   the character encoding of the words.
    keep_first: if a word occurs twice, keep its first vector and add a note, rather than raise an error.

    Raises ValueError that names the file and the line or byte. It is raised if the file is missing, empty, truncated or
    in another encoding, if a line has more or fewer numbers than the others or one that is not finite, or if a word
    occurs twice.
    """
    path = several.path(path)
    _check_encoding(encoding)
    data = open_bytes(path)
    if data[:2] in _UTF16:
        raise ValueError(f"{brief(path)} is UTF-16, which is not supported; convert it: iconv -f utf-16 -t utf-8")
    if (kind := other_kind(path, data)) is not None:
        raise ValueError(kind)
    header = _header(data)
    rows = _Rows(path, encoding, keep_first)
    if header is not None and not (header.words and 0 < header.width <= len(data)):
        raise rows.error("line 1", f"it announces {header.words} words of {header.width} numbers, which is impossible")
    if header is not None and _is_binary(data, header):
        _read_binary(data, header, rows)
    else:
        _read_text(data, header, rows)
    return rows.vectors()


def as_form(name: str) -> Form:
    """A file format by its name. Raises ValueError with the nearest names."""
    if name not in get_args(Form):
        raise ValueError(f"there is no vector file format {brief(name)}; {nearest(name, get_args(Form))}")
    return cast("Form", name)


def write(vectors: Vectors, path: str | Path, form: Form | None = None) -> Path:
    """Write a file atomically. Without a `form`, `.bin` means binary and any other name word2vec text; an additional `.gz`
    compresses. Reading the file gives the same numbers.

    Raises ValueError for a name that contradicts the format, a `.bin` for text or a `.txt` for binary, and for a word that
    the format can't store: with a space in a binary file, with a line end, or empty.
    """
    path = Path(path)
    if path.suffix in _NOT_WRITTEN:
        raise ValueError(
            f"vectors are written plain or compressed with gzip, and {path.name} ends in {path.suffix}; choose a name that "
            "ends in .gz, or one without a suffix of compression"
        )
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    form = as_form(form or ("binary" if suffix == ".bin" else "word2vec"))
    if suffix == (".txt" if form == "binary" else ".bin"):
        kind, other = ("binary", ".bin") if form == "binary" else ("text", ".txt")
        raise ValueError(
            f"the format {form} is {kind}, and other programs take {path.name} for the other; choose a name that ends in "
            f"{other}, or leave out the format"
        )
    for word in vectors.words:
        if not word or "\n" in word or word != word.strip(" \r\t") or (form == "binary" and " " in word):
            raise ValueError(f"the word {brief(word)} can't be written to a {form} file, which could not be read back")
    with atomic.replacing(path) as partial, partial.open("wb") as out:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", fileobj=out, mtime=0) as packed:
                packed.writelines(_written(vectors, form))
        else:
            out.writelines(_written(vectors, form))
    return path


def _written(vectors: Vectors, form: Form) -> Iterator[bytes]:
    if form != "glove":
        yield b"%d %d\n" % (len(vectors), vectors.width)
    line = " ".join(["%.9g"] * vectors.width)
    for word, row in zip(vectors.words, vectors.array, strict=True):
        written = row.astype("<f4").tobytes() if form == "binary" else (line % tuple(row.tolist())).encode()
        yield word.encode() + b" " + written + b"\n"


# -- shared by text and binary ----------------------------------------------------------------------------------------


class _Header(NamedTuple):
    words: int
    width: int
    end: int  # the byte after its line


@dataclass
class _Rows:
    """The words and numbers read so far. `place` is "line 7" or "byte 700"."""

    path: Path
    encoding: str
    keep_first: bool
    numbers: array[float] = field(default_factory=lambda: array("f"))
    places: dict[str, str] = field(default_factory=dict)  # of every word
    repeated: list[str] = field(default_factory=list)  # words left out, because they occurred before

    def error(self, place: str, problem: str) -> ValueError:
        return ValueError(f"{str(self.path)!r}, {place}: {problem}")

    def takes(self, spelled: bytes, place: str) -> bool:
        """Record a word. Returns whether its vector is needed."""
        try:
            word = spelled.decode(self.encoding)
        except UnicodeDecodeError as error:
            raise self.error(
                place, f"its word is not valid {self.encoding} ({error.reason}); give the file's encoding, latin-1, say"
            ) from None
        if not word:
            raise self.error(place, "there is no word before the numbers")
        before = self.places.get(word)
        if before is None:
            self.places[word] = place
            return True
        if not self.keep_first:
            raise self.error(
                place,
                f"the word {brief(word)} occurred in {before} already; remove one, or read the file with keep_first, "
                "which keeps the first",
            )
        self.repeated.append(word)
        return False

    def vectors(self) -> Vectors:
        words = tuple(self.places)
        numbers = np.frombuffer(self.numbers, np.float32).reshape(len(words), -1)
        bad = np.flatnonzero(~np.isfinite(numbers).all(1))
        if len(bad):
            raise self.error(self.places[words[bad[0]]], "a number is not finite, or too large for fp32")
        known = ", ".join(map(repr, self.repeated[:3])) + (" …" if len(self.repeated) > 3 else "")
        notes = (f"{len(self.repeated):,} lines repeat a word and were left out ({known})",) if self.repeated else ()
        return Vectors(words, numbers, notes)


def _check_encoding(encoding: str) -> None:
    try:
        "".encode(several.text(encoding, "the encoding"))
    except LookupError:
        raise ValueError(
            f"there is no encoding {brief(encoding)}; use one that Python knows, such as latin-1"
        ) from None


def _header(data: Bytes) -> _Header | None:
    """The header, if the first line consists of two numbers."""
    end = data.find(b"\n", 0, _LONGEST_WORD)
    fields = data[: end + 1].removeprefix(b"\xef\xbb\xbf").split()
    if end < 0 or len(fields) != 2 or not all(field.isdigit() for field in fields):
        return None
    return _Header(int(fields[0]), int(fields[1]), end + 1)


def _is_binary(data: Bytes, header: _Header) -> bool:
    """Whether the first word is followed by anything but a line of written numbers."""
    begin = data.find(b" ", header.end)
    end = data.find(b"\n", begin)
    sample = data[begin : min(end if end > 0 else len(data), begin + 4 * header.width)] if begin > 0 else b""
    if not sample.strip():  # a number whose first byte is a line feed, unless there is no room for one
        return begin > 0 and len(data) > begin + 4 * header.width
    if sample.translate(None, _PRINTABLE):
        return True
    fields = data[begin : min(end if end > 0 else len(data), begin + _LONGEST_LINE)].split()
    return not any(map(_is_number, fields))  # the bytes of a number may look like letters


# -- binary -----------------------------------------------------------------------------------------------------------


def _read_binary(data: Bytes, header: _Header, rows: _Rows) -> None:
    count, width, at = header
    size = 4 * width
    for number in range(1, count + 1):
        while data[at : at + 1] == b"\n":
            at += 1
        space = data.find(b" ", at, at + _LONGEST_WORD)
        if space < 0 or space + 1 + size > len(data):
            raise rows.error(
                f"byte {min(at, len(data)):,}",
                f"the file ends within word {number:,} of the {count:,}, of {width} numbers each, that its first line "
                "announces: it is truncated, so download it again"
                if space >= 0 or at + _LONGEST_WORD > len(data)
                else f"there is no word where the first line, of {width} numbers per word, puts one",
            )
        if rows.takes(data[at:space], f"byte {at:,}"):
            rows.numbers.frombytes(_native(data[space + 1 : space + 1 + size]))
        at = space + 1 + size
    if data[at:].strip():
        raise rows.error(f"byte {at:,}", f"more follows than the {count:,} words that the first line announces")


def _native(numbers: bytes) -> bytes:
    """Little-endian fp32 in this machine's order."""
    return np.frombuffer(numbers, "<f4").astype(np.float32).tobytes()


# -- text -------------------------------------------------------------------------------------------------------------


def _read_text(data: Bytes, header: _Header | None, rows: _Rows) -> None:
    width = header.width if header else 0
    for number, line in _lines(data, header.end if header else 0, 2 if header else 1):
        width = width or _width(line, rows, number)
        fields = line.rsplit(b" ", width)
        if len(fields) != width + 1 or (b" " in fields[0] and _is_number(fields[0].rsplit(b" ", 1)[1])):
            first = "the first line says" if header else "the first line has"
            raise rows.error(f"line {number:,}", f"there are {_trailing(line)} numbers, and {first} {width}")
        if rows.takes(fields[0], f"line {number:,}"):
            rows.numbers.frombytes(_numbers(fields[1:], rows, number).tobytes())
    if header and len(rows.places) + len(rows.repeated) != header.words:
        raise rows.error(
            "line 1",
            f"it announces {header.words:,} words, and {len(rows.places) + len(rows.repeated):,} follow: the file is "
            "truncated or was changed; download it again, or remove the first line",
        )
    if not rows.places:
        raise rows.error("line 1", "there is no word with a vector")


def _lines(data: Bytes, at: int, number: int) -> Iterator[tuple[int, bytes]]:
    """The non-blank lines with their line numbers, without trailing spaces."""
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        line = data[at:end].rstrip(b" \t\r")
        line = line.removeprefix(b"\xef\xbb\xbf") if at == 0 else line
        if line:
            yield number, line
        at, number = end + 1, number + 1


def _width(line: bytes, rows: _Rows, number: int) -> int:
    """The number of numbers in the first line of a GloVe file."""
    width = _trailing(line)
    if not width:
        raise rows.error(
            f"line {number:,}", "no number follows its word; a file of vectors has a word and its numbers in each line"
        )
    return width


def _trailing(line: bytes) -> int:
    """The number of numbers at the end of a line; its first field is always a word."""
    fields = line.split(b" ")[1:]
    return next((i for i, part in enumerate(reversed(fields)) if not _is_number(part)), len(fields))


def _numbers(fields: list[bytes], rows: _Rows, number: int) -> NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):  # too large numbers are reported at the end
            return np.fromiter(map(float, fields), np.float32, len(fields))
    except ValueError:
        bad = next(part for part in fields if not _is_number(part))
        raise rows.error(f"line {number:,}", f"{brief(bad.decode('ascii', 'replace'))} is no number") from None


def _is_number(part: bytes) -> bool:
    with suppress(ValueError):
        float(part)
        return True
    return False
