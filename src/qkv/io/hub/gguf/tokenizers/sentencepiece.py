"""SentencePiece tokenizers in GGUF: BPE by scores (`tokenizer.ggml.model` = "llama") and the unigram model ("t5").

A file is read as the SentencePiece model that it describes. A tokenizer is written if it does what such a model does.
Every way to cut a piece into two pieces has to be a merge, and the merges of one piece have to be adjacent (its score
is then minus its rank). Texts of many kinds have to become the same tokens when the file is read again. llama.cpp's BPE
always falls back to bytes, and its unigram model never does.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import tokenizers

from .....core.spec import brief
from .....data.tokenizers.pipelines import BYTES
from .....data.tokenizers.safety_limits import check_charsmap
from .....data.tokenizers.sentencepiece.model_file import ModelType, Piece, PieceKind, SentencePiece
from .....data.tokenizers.sentencepiece.pipeline import merges_of, pipeline
from .vocabulary import (
    ADD_BOS,
    ADD_EOS,
    ADD_SPACE,
    MODEL,
    PRE,
    PREFIX,
    SCORES,
    TOKENS,
    Type,
    flag,
    read_roles,
    read_tokens,
)

EXTRA_SPACES, CHARACTERS = f"{PREFIX}remove_extra_whitespaces", f"{PREFIX}precompiled_charsmap"
MODELS = {"llama": ModelType.BPE, "t5": ModelType.UNIGRAM}
LEADING_SPACE = "  and more"
# fmt: off
PROBES = (
    "Hello world", "a", "the cat's 12,345 hats: don't!", "naïve Straße, ½ ﬁne", "🙂 中文 и", "two  spaces",
    "x\ny\tz",
    "def f(x):\n    return x", "▁", "trailing ", "'S it's I'M ALL CAPS", "e\u0301 \u212b",
)
# fmt: on


# -- reading ------------------------------------------------------------------------------------------------------------


def from_metadata(metadata: Mapping[str, Any], tokens: list[str]) -> dict[str, Any]:
    """The content of a tokenizer.json. Raises ValueError naming the key that is missing or of a wrong kind."""
    _, types = read_tokens(metadata)
    scores = metadata.get(SCORES)
    if not isinstance(scores, np.ndarray) or len(scores) != len(tokens):
        raise ValueError(f"{SCORES} must be one number for each of {len(tokens):,} tokens")
    kind = MODELS[metadata[MODEL]]
    characters = metadata.get(CHARACTERS, np.empty(0, np.uint8))
    if not isinstance(characters, np.ndarray) or characters.dtype.itemsize != 1:
        raise ValueError(f"{CHARACTERS} must be an array of bytes, not {brief(characters)}")
    table = characters.tobytes()
    if table:
        check_charsmap(table)
    unk = read_roles(metadata, len(tokens)).get("unk", 0)
    pieces = [Piece(token, float(score), _kind(t)) for token, score, t in zip(tokens, scores, types, strict=True)]
    pieces[unk] = pieces[unk]._replace(kind=PieceKind.UNKNOWN)
    model = SentencePiece(
        tuple(
            piece._replace(kind=PieceKind.CONTROL) if _is_second(piece, i, unk) else piece
            for i, piece in enumerate(pieces)
        ),
        kind,
        byte_fallback=kind is ModelType.BPE and set(BYTES) <= set(tokens),
        unk_id=unk,
        precompiled_charsmap=table,
        add_dummy_prefix=flag(metadata, ADD_SPACE, kind is ModelType.BPE),
        remove_extra_whitespaces=flag(metadata, EXTRA_SPACES, False),
    )
    data: dict[str, Any] = json.loads(pipeline(model).to_str())
    return {key: data[key] for key in ("normalizer", "pre_tokenizer", "decoder", "model")}


def _kind(value: int) -> PieceKind:
    return PieceKind(value) if value in set(PieceKind) else PieceKind.NORMAL


def _is_second(piece: Piece, index: int, unk: int) -> bool:
    """Whether a piece is a second unknown one."""
    return piece.kind is PieceKind.UNKNOWN and index != unk


def around(metadata: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether a text begins with bos and ends with eos."""
    bpe = metadata[MODEL] == "llama"
    return flag(metadata, ADD_BOS, bpe), flag(metadata, ADD_EOS, not bpe)


# -- writing ------------------------------------------------------------------------------------------------------------


def to_metadata(
    data: Mapping[str, Any],
    raw: tokenizers.Tokenizer,
    tokens: list[str],
    types: list[int],
    unk: int | None,
    notes: list[str],
) -> dict[str, Any]:
    """The metadata beside tokens and roles. Raises ValueError naming what llama.cpp can't do; `notes` get what differs."""
    if unk is None:
        raise ValueError(
            "qkv writes SentencePiece tokenizers with an unk token, and this one has none; set tokenizer.unk"
        )
    bpe = data["model"]["type"] == "BPE"
    scores = _ranks(data, tokens, types) if bpe else _probabilities(data, tokens)
    table = _table(data.get("normalizer"))
    written: dict[str, Any] = {MODEL: "llama" if bpe else "t5", PRE: "default", SCORES: np.array(scores, np.float32)}
    if table and not bpe:
        written[CHARACTERS] = np.frombuffer(table, np.uint8)
    said = {TOKENS: tokens, f"{PREFIX}token_type": np.array(types, np.int32), f"{PREFIX}unknown_token_id": unk}
    for prefix, merged in product((True, False), (False, True) if not bpe else (False,)):
        flags = {ADD_SPACE: prefix, **({} if bpe else {EXTRA_SPACES: merged})}
        again = _read_again({**written, **said, **flags}, tokens, types)
        if all(again.encode(text, add_special_tokens=False).ids == _ids(raw, text) for text in PROBES):
            if again.encode(LEADING_SPACE, add_special_tokens=False).ids != _ids(raw, LEADING_SPACE):
                notes.append("llama.cpp cuts a text that begins with a space otherwise than this tokenizer does")
            return {**written, **flags}
    raise ValueError(
        "llama.cpp's SentencePiece tokenizers cut some texts otherwise than this tokenizer does (its normalization, digits "
        "or unknown characters); byte-level BPE, tokenizer.kind=bpe, is written"
    )


def _ids(raw: tokenizers.Tokenizer, text: str) -> list[int]:
    return list(raw.encode(text, add_special_tokens=False).ids)


def _read_again(metadata: Mapping[str, Any], tokens: list[str], types: list[int]) -> tokenizers.Tokenizer:
    data = from_metadata(metadata, tokens)
    special = {Type.CONTROL, Type.UNKNOWN}
    raw = tokenizers.Tokenizer.from_str(
        json.dumps({"version": "1.0", "added_tokens": [], "post_processor": None, **data})
    )
    added = [(t, kind) for t, kind in zip(tokens, types, strict=True) if kind in special or kind == Type.USER_DEFINED]
    raw.add_special_tokens(
        [tokenizers.AddedToken(t, special=True, normalized=False) for t, kind in added if kind in special]
    )
    raw.add_tokens(
        [tokenizers.AddedToken(t, special=False, normalized=False) for t, kind in added if kind not in special]
    )
    raw.encode_special_tokens = True
    return raw


def _ranks(data: Mapping[str, Any], tokens: list[str], types: list[int]) -> list[float]:
    """Minus the rank of each piece's merges. Raises ValueError if merges are no scores."""
    merges = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in data["model"]["merges"]]
    order: dict[str, int] = {}
    last = None
    together = True
    for left, right in merges:
        piece = left + right
        together = together and (piece == last or piece not in order)
        order.setdefault(piece, len(order))
        last = piece
    scores = [-float(order.get(token, len(order))) for token in tokens]
    pieces = [Piece(t, score, PieceKind(kind)) for t, score, kind in zip(tokens, scores, types, strict=True)]
    if not together or {*merges_of(pieces)} != {*merges}:
        raise ValueError(
            "llama.cpp's BPE over characters joins any two pieces that make a third, by its score, and this tokenizer has "
            "its own merges; byte-level BPE, tokenizer.byte_level=true, is written"
        )
    if not data["model"].get("byte_fallback"):
        raise ValueError(
            "llama.cpp's BPE over characters spells unknown characters as bytes, and this tokenizer doesn't; train one with "
            "tokenizer.byte_level=true"
        )
    return scores


def _probabilities(data: Mapping[str, Any], tokens: list[str]) -> list[float]:
    if data["model"].get("byte_fallback"):
        raise ValueError(
            "llama.cpp's unigram tokenizer doesn't spell unknown characters as bytes, as this one does; train one with "
            "tokenizer.byte_fallback=false"
        )
    known = {piece: float(score) for piece, score in data["model"]["vocab"]}
    return [known.get(token, 0.0) for token in tokens]


def _table(normalizer: Any) -> bytes:
    """The character table of a normalizer, if it has one."""
    if isinstance(normalizer, list):
        return next((table for part in normalizer if (table := _table(part))), b"")
    if not isinstance(normalizer, dict):
        return b""
    if normalizer.get("type") == "Precompiled":
        return base64.b64decode(normalizer.get("precompiled_charsmap") or "")
    return _table(normalizer.get("normalizers"))
