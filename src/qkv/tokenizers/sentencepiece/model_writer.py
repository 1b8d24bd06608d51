"""SentencePiece's `.model` files, written: the fields of the protocol buffer that `sentencepiece_file` reads, and a model
found again in the pipeline that was made of it."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any

import tokenizers

from ..pipelines import close_holes
from .model_file import Kind, Piece, SentencePiece
from .pipeline import pipeline

_SQUEEZES = r"\A +| +\z"  # the first stage of a pipeline that removes extra spaces
_PARTS = ("normalizer", "pre_tokenizer", "decoder", "model")


def dump(model: SentencePiece) -> bytes:
    """The content of a file: `parse(dump(model)) == model`. Scores have four bytes."""
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


def unigram_of(raw: tokenizers.Tokenizer, kind: Callable[[str], Kind]) -> SentencePiece:
    """The model of which `pipeline` makes such a tokenizer, its pieces of the kinds that `kind` says.

    Raises ValueError where there is none: of another model than a unigram's, or with stages of its own.
    """
    state = _state(raw)
    if state["model"]["type"] != "Unigram":
        raise ValueError(f"its pieces are those of a {state['model']['type']} model, not of a unigram model")
    stages: list[dict[str, Any]] = (state["normalizer"] or {}).get("normalizers", [])
    found = SentencePiece(
        tuple(Piece(text, score, kind(text)) for text, score in state["model"]["vocab"]),
        unk_id=state["model"]["unk_id"],
        precompiled_charsmap=next(
            (base64.b64decode(s["precompiled_charsmap"]) for s in stages if _is(s, "Precompiled")), b""
        ),
        add_dummy_prefix=any(_is(stage, "Prepend") for stage in stages),
        remove_extra_whitespaces=any(stage.get("pattern") == {"Regex": _SQUEEZES} for stage in stages),
    )
    controls = [token.content for token in raw.get_added_tokens_decoder().values() if token.special]
    again = _state(close_holes(pipeline(found), controls))
    other = next((part for part in _PARTS if again[part] != state[part]), None)
    if other is not None:
        raise ValueError(f"its {other.replace('_', '-')} is not one that a SentencePiece model can say")
    return found


def _state(raw: tokenizers.Tokenizer) -> dict[str, Any]:
    """Its JSON, as it is once it has been read again."""
    state: dict[str, Any] = json.loads(tokenizers.Tokenizer.from_str(raw.to_str()).to_str())
    return state


def _is(stage: dict[str, Any], kind: str) -> bool:
    return bool(stage["type"] == kind)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers are written in 64 bits
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(int(value))


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value
