"""SentencePiece `.model` files: parses the protocol buffer without the sentencepiece library.

A file is one `ModelProto` message (`sentencepiece_model.proto`): pieces, what the trainer was told, and how text is
normalized. A protocol buffer is a list of fields, each a key (number and wire type) and a value; what a field means is
in its number, and numbers that are not asked for are skipped.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ..safety_limits import LONGEST_PIECE, check_charsmap

Value = int | bytes

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types; 3 and 4 (groups) are not in use any more


class Kind(IntEnum):
    """What a piece is for."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    """Never read from text."""
    USER_DEFINED = 4
    """Always one piece where text has it."""
    UNUSED = 5
    BYTE = 6


class ModelType(IntEnum):
    UNIGRAM = 1
    BPE = 2
    WORD = 3
    CHAR = 4


class Piece(NamedTuple):
    text: str
    score: float
    """A log-probability (unigram), or minus the place in the order of merges (BPE)."""
    kind: Kind


@dataclass(frozen=True)
class SentencePiece:
    """A `.model` file; names and defaults are those of `sentencepiece_model.proto`."""

    pieces: tuple[Piece, ...]
    model_type: ModelType = ModelType.UNIGRAM
    byte_fallback: bool = False
    treat_whitespace_as_suffix: bool = False
    unk_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    pad_id: int = -1
    precompiled_charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True
    denormalizes: bool = False


def parse(data: bytes) -> SentencePiece:
    """Read a `.model` file. Raises ValueError with a reason when it is truncated, or not such a file."""
    pieces: list[Piece] = []
    trainer: dict[int, Value] = {}
    normalizer: dict[int, Value] = {}
    denormalizer: dict[int, Value] = {}
    for number, value in fields(data):
        if number == 1:
            pieces.append(_piece(_message(value)))
        elif number in (2, 3, 5):
            {2: trainer, 3: normalizer, 5: denormalizer}[number].update(fields(_message(value)))
    if not pieces or not normalizer:
        raise ValueError(f"it has {'no pieces' if not pieces else 'pieces, but does not say how text is normalized'}")
    table = _message(normalizer.get(2, b""))
    if table:
        check_charsmap(table)
    kind = _int(trainer, 3, ModelType.UNIGRAM)
    if kind not in set(ModelType):
        raise ValueError(f"it has the model type {kind}; 1 (unigram), 2 (BPE), 3 (word) and 4 (character) are known")
    return SentencePiece(
        tuple(pieces),
        ModelType(kind),
        byte_fallback=bool(_int(trainer, 35, 0)),
        treat_whitespace_as_suffix=bool(_int(trainer, 24, 0)),
        unk_id=_int(trainer, 40, 0),
        bos_id=_int(trainer, 41, 1),
        eos_id=_int(trainer, 42, 2),
        pad_id=_int(trainer, 43, -1),
        precompiled_charsmap=table,
        add_dummy_prefix=bool(_int(normalizer, 3, 1)),
        remove_extra_whitespaces=bool(_int(normalizer, 4, 1)),
        escape_whitespaces=bool(_int(normalizer, 5, 1)),
        denormalizes=bool(_message(denormalizer.get(2, b""))),
    )


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """The fields of a message, in their order: number and value, the four bytes of a float as they stand."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"it is no SentencePiece model: byte {at - 1} begins no field of a protocol buffer")
        if number == 0 or size > len(data) - at:
            raise ValueError(f"it is cut off, or no SentencePiece model: a field at byte {at} wants {size:,} bytes")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first, as long as the eighth is set."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("it is cut off, or no SentencePiece model: it ends within a number")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    raise ValueError(f"it is no SentencePiece model: a number at byte {at} has no end")


def _piece(data: bytes) -> Piece:
    read = dict(fields(data))
    text, kind, four = _message(read.get(1, b"")), _int(read, 3, Kind.NORMAL), _message(read.get(2, bytes(4)))
    score = struct.unpack("<f", four)[0] if len(four) == 4 else math.nan
    if len(text) > 4 * LONGEST_PIECE:
        raise ValueError(f"it has a piece of {len(text):,} bytes, {text[:40]!r} …, more than any model")
    if not text or kind not in set(Kind) or not math.isfinite(score):
        raise ValueError(f"it has a piece {text[:40]!r} of type {kind} with the score {score}")
    # Nine digits are what a float of four bytes holds; the JSON reader of `tokenizers` gets more of them wrong.
    return Piece(text.decode("utf-8"), float(f"{score:.9g}"), Kind(kind))


def _message(value: Value) -> bytes:
    if isinstance(value, int):
        raise ValueError("it is no SentencePiece model: a number stands where a text or a message belongs")
    return value


def _int(read: dict[int, Value], number: int, default: int) -> int:
    value = read.get(number, default)
    if not isinstance(value, int):
        raise ValueError("it is no SentencePiece model: a text stands where a number belongs")
    return value - (1 << 64) if value >= 1 << 63 else value  # negative numbers are written in 64 bits
