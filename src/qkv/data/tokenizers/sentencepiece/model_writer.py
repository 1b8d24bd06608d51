"""Writes SentencePiece `.model` files, and recovers a SentencePiece model from the pipeline it was converted to."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any

import tokenizers

from ..pipelines import close_holes
from .model_file import Piece, PieceKind, SentencePiece
from .pipeline import pipeline

_SQUEEZES = r"\A +| +\z"  # regular expression of the stage that removes extra spaces
_PARTS = ("normalizer", "pre_tokenizer", "decoder", "model")


def dump(model: SentencePiece) -> bytes:
    """Return the bytes of a `.model` file: `parse(dump(model)) == model`. Scores are stored as float32."""
    pieces = (
        _bytes(1, piece.text.encode()) + b"\x15" + struct.pack("<f", piece.score) + _number(3, piece.kind)
        for piece in model.pieces
    )
    trainer = {
        3: model.model_type,
        24: model.treat_whitespace_as_suffix,
        35: model.byte_fallback,
        40: model.unk_id,
        41: model.bos_id,
        42: model.eos_id,
        43: model.pad_id,
    }
    normalizer = {3: model.add_dummy_prefix, 4: model.remove_extra_whitespaces, 5: model.escape_whitespaces}
    return b"".join(
        [
            *(_bytes(1, piece) for piece in pieces),
            _bytes(2, b"".join(_number(*entry) for entry in trainer.items())),
            _bytes(
                3, _bytes(2, model.precompiled_charsmap) + b"".join(_number(*entry) for entry in normalizer.items())
            ),
        ]
    )


def unigram_of(raw: tokenizers.Tokenizer, kind: Callable[[str], PieceKind]) -> SentencePiece:
    """Return the unigram model that `pipeline` would convert to this tokenizer; `kind` gives the type of each piece.

    Raises ValueError if there is none: the tokenizer has another model, or stages that SentencePiece lacks.
    """
    state = _state(raw)
    if state["model"]["type"] != "Unigram":
        raise ValueError(f"it is a {state['model']['type']} model, not a unigram model")
    stages: list[dict[str, Any]] = (state["normalizer"] or {}).get("normalizers", [])
    model = SentencePiece(
        tuple(Piece(text, score, kind(text)) for text, score in state["model"]["vocab"]),
        unk_id=state["model"]["unk_id"],
        precompiled_charsmap=next(
            (base64.b64decode(s["precompiled_charsmap"]) for s in stages if _is(s, "Precompiled")), b""
        ),
        add_dummy_prefix=any(_is(stage, "Prepend") for stage in stages),
        remove_extra_whitespaces=any(stage.get("pattern") == {"Regex": _SQUEEZES} for stage in stages),
    )
    controls = [token.content for token in raw.get_added_tokens_decoder().values() if token.special]
    converted = _state(close_holes(pipeline(model), controls))
    other = next((part for part in _PARTS if converted[part] != state[part]), None)
    if other is not None:
        raise ValueError(f"its {other.replace('_', '-')} has no equivalent in a SentencePiece model")
    return model


def _state(raw: tokenizers.Tokenizer) -> dict[str, Any]:
    """Return a tokenizer's JSON in normal form, as it is after a round trip."""
    state: dict[str, Any] = json.loads(tokenizers.Tokenizer.from_str(raw.to_str()).to_str())
    return state


def _is(stage: dict[str, Any], kind: str) -> bool:
    return bool(stage["type"] == kind)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers are stored in 64 bits
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(int(value))


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value
