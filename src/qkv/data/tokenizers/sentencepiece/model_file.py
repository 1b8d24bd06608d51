"""SentencePiece `.model` files: parses the protocol buffer without the sentencepiece library.

A file is one `ModelProto` message (`sentencepiece_model.proto`): the pieces, the trainer's settings and the normalizer's.
A protocol buffer is a list of fields, each with a number, a wire type and a value. The number identifies the field; unknown
numbers are skipped.
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

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types; 3 and 4 (groups) are deprecated


class PieceKind(IntEnum):
    """Type of a piece."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    """Never matched in text."""
    USER_DEFINED = 4
    """Always a single piece."""
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
    """Log-probability (unigram), or negative rank of the merge (BPE)."""
    kind: PieceKind


@dataclass(frozen=True)
class SentencePiece:
    """Content of a `.model` file, with the names and defaults of `sentencepiece_model.proto`."""

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
    """Parse a `.model` file. Raises ValueError with the reason if it is truncated, or not a SentencePiece model."""
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
        raise ValueError(f"it has no {'pieces' if not pieces else 'normalizer settings'}")
    table = _message(normalizer.get(2, b""))
    if table:
        check_charsmap(table)
    kind = _int(trainer, 3, ModelType.UNIGRAM)
    if kind not in set(ModelType):
        raise ValueError(
            f"it has the model type {kind}; supported are 1 (unigram), 2 (BPE), 3 (word) and 4 (character)"
        )
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
    """Yield the fields of a message in order: number and value; fixed-width values as raw bytes."""
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
            raise ValueError(f"it is no SentencePiece model: byte {at - 1} is not the start of a protocol buffer field")
        if number == 0 or size > len(data) - at:
            raise ValueError(f"it is cut off, or no SentencePiece model: a field at byte {at} has {size:,} bytes")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode a variable-length integer: seven bits per byte, lowest first; the eighth bit continues the number."""
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
    values = dict(fields(data))
    text, kind, raw = _message(values.get(1, b"")), _int(values, 3, PieceKind.NORMAL), _message(values.get(2, bytes(4)))
    score = struct.unpack("<f", raw)[0] if len(raw) == 4 else math.nan
    if len(text) > 4 * LONGEST_PIECE:
        raise ValueError(f"it has a piece of {len(text):,} bytes, {text[:40]!r} …; the limit is {4 * LONGEST_PIECE:,}")
    if not text or kind not in set(PieceKind) or not math.isfinite(score):
        raise ValueError(f"it has a piece {text[:40]!r} of type {kind} with the score {score}")
    # Nine digits identify a float32; the JSON reader of `tokenizers` rounds longer numbers wrongly.
    return Piece(text.decode("utf-8"), float(f"{score:.9g}"), PieceKind(kind))


def _message(value: Value) -> bytes:
    if isinstance(value, int):
        raise ValueError("it is no SentencePiece model: a field holds a number instead of a text or a message")
    return value


def _int(values: dict[int, Value], number: int, default: int) -> int:
    value = values.get(number, default)
    if not isinstance(value, int):
        raise ValueError("it is no SentencePiece model: a field holds a text instead of a number")
    return value - (1 << 64) if value >= 1 << 63 else value  # negative numbers are stored in 64 bits
