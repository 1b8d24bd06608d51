"""Character encodings: opens text files as UTF-8. A file in another encoding is converted once, into the cache."""

from __future__ import annotations

import codecs
import re
import shlex
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import AfterValidator

from ...core.spec import brief, counted
from ..file_kinds import other_kind
from . import cache
from .cache import Bytes, Stamp, derived, stamp_of
from .compressed import bytes_of, existing, open_bytes

_BOMS = {  # UTF-32 first: its mark begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
BEGINNING = 1 << 20  # bytes that show the encoding
_HEAD = 4096  # bytes inspected to decide whether a file is text
_C1 = re.compile(rb"[\x80-\x9f]")  # control characters in Latin-1, quotation marks and € in cp1252
_RUN = re.compile(rb"[\x80-\xff]{3,}")  # a word of another script; Western words have hardly two such bytes in a row
_SYMBOLS = re.compile(
    rb"[\xa1-\xbf]"
)  # in Latin-1; first bytes of common characters in Big5, whose second are often ASCII
_SEVERAL = 4  # such symbols
_KANA = re.compile(
    rb"[\x81-\x83\x86-\x89\x8b\x8d\x8f\x90\x98\x9b\x9d]"
)  # rare in cp1252; begin characters in Shift-JIS
_NOT_ASCII = re.compile(rb"[^\s,;\"|]*[\x80-\xff][^\s,;\"|]*")
_LATIN = ("cp1252", "cp1250", "cp1254")  # of Western and Central Europe and Turkey
_SCRIPTS = {
    "cp1251": "Cyrillic",
    "cp1253": "Greek",
    "gb18030": "Chinese",
    "big5": "Chinese",
    "shift_jis": "Japanese",
    "euc_kr": "Korean",
    "cp850": "DOS",
}
_NOT_OF_FILES = ("idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape", "mbcs", "oem")


def _known(name: str) -> str:
    try:
        text = codecs.lookup(name)._is_text_encoding
    except LookupError:
        text = False
    if not text or name.lower().replace("_", "-") in _NOT_OF_FILES:
        raise ValueError(
            f"there is no encoding {brief(name)}; give utf-8, latin-1, cp1252, utf-16, gb18030, shift_jis or "
            "another of Python's"
        )
    return name


Encoding = Annotated[str, AfterValidator(_known)]
"""A character encoding, by its Python name."""


def open_text(path: str | Path, encoding: str = "utf-8") -> Bytes:
    """The bytes of a text file in UTF-8 (not validated if the file is UTF-8 already). UTF-16 and UTF-32 are recognized by
    their byte-order mark.

    Raises ValueError if the file is missing, empty, broken, or not in its encoding.
    """
    path = existing(path)
    data = text_of(path.resolve(), stamp_of(path), encoding)
    if len(data) == 0:
        raise ValueError(f"{brief(path)} is empty")
    return data


@lru_cache(maxsize=256)
def text_of(path: Path, stamp: Stamp, encoding: str) -> Bytes:
    data = bytes_of(path, stamp)
    if (kind := other_kind(path, data)) is not None:
        raise ValueError(kind)
    if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig"):
        encoding = next((name for bom, name in _BOMS.items() if data[:4].startswith(bom)), "")
    if not encoding:
        _check_is_text(data, path)
        return data
    if not codecs.lookup(encoding).name.startswith(("utf-16", "utf-32")):
        _check_is_text(data, path)
    return derived(path, stamp, f"from-{codecs.lookup(encoding).name}", lambda: _in_utf8(data, path, encoding))


def unmarked(path: Path) -> Bytes:
    """The bytes of a file, which are converted to UTF-8 if a byte-order mark of UTF-16 or UTF-32 is at their beginning."""
    data = open_bytes(path)
    return open_text(path) if data[:4].startswith(tuple(_BOMS)) else data


def guessed_encoding(content: bytes) -> str:
    """The encoding of a text, or of its beginning: ascii, utf-8, latin-1, or cp1252 for one that has bytes 80 to 9f, which
    are control characters in Latin-1. UTF-16 and UTF-32 with a mark are utf-8, as `open_text` recognizes them.

    Raises ValueError, naming the line, if most of it is UTF-8, or with encodings to try if its letters are not Western.
    """
    if content.isascii() or content.startswith(tuple(_BOMS)):
        return "ascii" if content.isascii() else "utf-8"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(content)  # the last character may be cut
        return "utf-8"
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
    text = content.decode("utf-8", "surrogateescape")
    wrong = sum("\udc80" <= letter <= "\udcff" for letter in text)
    if (good := len(text) - len(text.encode("ascii", "ignore")) - wrong) >= wrong:
        raise ValueError(
            f"line {line:,} is not valid UTF-8, and most of the file is ({good:,} other characters); correct the line"
        )
    high = len(content) - len(content.decode("ascii", "ignore"))
    name = "cp1252" if _C1.search(content) else "latin-1"
    symbols = _SYMBOLS.findall(content)
    chinese = len(symbols) > high / 2 and len(set(symbols)) >= _SEVERAL and _decodes(content, "big5")
    japanese = len(_KANA.findall(content)) > high / 6 and _decodes(content, "shift_jis")
    if chinese or japanese or sum(map(len, _RUN.findall(content))) > high / 2 or not _decodes(content, name):
        some = ", ".join(
            f"{one} ({script}: {reading(content, one)!r})" for one, script in _SCRIPTS.items() if _decodes(content, one)
        )
        raise ValueError(
            f"it is not UTF-8, and its letters are not Western ones (line {line:,}); name its encoding, such as "
            f"{some}, or save it as UTF-8"
        )
    return name


def reading(content: bytes, encoding: str) -> str:
    """The first word of a text with a character that is not ASCII, as an encoding reads it."""
    word = _NOT_ASCII.search(content)
    return word[0].decode(encoding, "replace")[:40] if word else ""


def other_readings(content: bytes, encoding: str) -> dict[str, tuple[str, str]]:
    """The first word that another encoding of Latin letters reads otherwise, in `encoding` and in that one, by the other's
    name. Empty if `encoding` is not one of Latin letters."""
    if codecs.lookup(encoding).name not in ("iso8859-1", *_LATIN):
        return {}
    found = {}
    for name in _LATIN:
        letters = ((byte, bytes([byte])) for byte in range(128, 256))
        other = [byte for byte, one in letters if one.decode(name, "replace") != one.decode(encoding, "replace")]
        either = b"|".join(re.escape(bytes([byte])) for byte in other)
        word = re.search(rb"[^\s,;\"|]*(?:%b)[^\s,;\"|]*" % either, content) if other else None
        if word is not None and _decodes(content, name):
            found[name] = word[0].decode(encoding, "replace")[:40], word[0].decode(name, "replace")[:40]
    return found


def said_of(content: bytes, encoding: str) -> str:
    """A clause on how a text in an encoding is read: its first word with a letter that is not ASCII, and others in
    encodings that may be right too."""
    others = other_readings(content, encoding).items()
    listed = [f"{word!r} is {other!r} with data.encoding={name}" for name, (word, other) in others]
    return "; ".join((f"its first word with such letters is {reading(content, encoding)!r}", *listed))


def nul_note(path: Path, data: Bytes) -> str | None:
    """A note on the NUL characters of a text in UTF-8, which are kept, as pandas does; None if there are none."""
    total = sum(bytes(data[start : start + cache.CHUNK]).count(0) for start in range(0, len(data), cache.CHUNK))
    if not total:
        return None
    line = bytes(data[: data.find(b"\0")]).count(b"\n") + 1
    return (
        f"{path.name} has {counted(total, 'NUL character')} (the first in line {line:,}), kept as part of the text; to "
        f"remove them: tr -d '\\000' < {shlex.quote(path.name)} > NEW"
    )


def is_unicode(encoding: str) -> bool:
    """Whether an encoding is one of Unicode, such as utf-8 or utf-16."""
    return codecs.lookup(encoding).name.startswith("utf")


def note_of(path: Path, encoding: str) -> str | None:
    """A note on a file in an encoding that is not one of Unicode, which nothing in the file confirms; None for ASCII."""
    content = bytes(bytes_of(path.expanduser().resolve(), stamp_of(path.expanduser()))[:BEGINNING])
    if content.isascii():
        return None
    return f"{path.name} is read as {encoding}, which data.encoding says: {said_of(content, encoding)}"


def _decodes(content: bytes, encoding: str) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(content)
    except UnicodeDecodeError:
        return False
    return True


def _in_utf8(data: Bytes, path: Path, encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()
    lines = 0
    for start in range(0, len(data), cache.CHUNK):
        chunk = data[start : start + cache.CHUNK]
        try:
            text = decoder.decode(chunk, final=start + len(chunk) == len(data))
            converted = text.encode("utf-8")
        except UnicodeError as error:
            reason = getattr(error, "reason", "") or error
            raise ValueError(
                f"{brief(path)}, near line {lines + 1:,}, is not in the encoding {encoding} ({reason})"
            ) from None
        lines += text.count("\n")
        yield converted


def _check_is_text(data: Bytes, path: Path) -> None:
    """Raises ValueError if a file begins with many zero bytes: UTF-16 without a byte-order mark would pass for UTF-8."""
    head = np.frombuffer(data[:_HEAD], np.uint8)
    zeros = head == 0
    if len(head) and zeros.mean() > 0.2:
        order = "be" if zeros[::2].sum() > zeros[1::2].sum() else "le"
        raise ValueError(
            f"{brief(path)} is not UTF-8 text: {zeros.mean():.0%} of its beginning are zero bytes. If it is UTF-16 without "
            f"a byte-order mark, give data.encoding=utf-16-{order}"
        )


def not_utf8(path: Path, line: int) -> ValueError:
    return ValueError(
        f"{str(path)!r}, line {line:,}, is not valid UTF-8; convert the file first (iconv -f cp1252 -t utf-8, if it is of "
        "Windows), or, in a recipe, give its encoding, such as data.encoding=cp1252"
    )
