"""Converts a SentencePiece model to a pipeline of the `tokenizers` library that gives the same ids.

SentencePiece normalizes the whole text, writes its spaces as `▁`, adds one before it, and tokenizes the result at once. If
pieces contain `▁` only at their start, cutting the text before every `▁` gives the same ids and lets the library cache
words; otherwise the model gets the whole text here too.
"""

from __future__ import annotations

import re
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from ....core.spec import brief
from ..pipelines import BYTES
from .model_file import ModelType, Piece, PieceKind, SentencePiece

SPACE = "▁"
_APART, _TOGETHER = "e\u0301 \u212b \u2126", ("\u00e9 \u00c5 \u03a9", "\u00e9 \u00e5 \u03c9")  # cased, case-folded
_NONE = "\ufdd0"  # a noncharacter of Unicode
_ALL = 1 << 16  # more spaces than a text begins with


def pipeline(model: SentencePiece, extra: tuple[Piece, ...] = ()) -> tokenizers.Tokenizer:
    """Convert a model to a tokenizer. Control tokens become special added tokens, user-defined symbols other added tokens.

    Args:
        extra: pieces after the file's, such as T5's sentinels.

    Raises ValueError for models that use something for which the library has no stage.
    """
    for unsupported, what in (
        (model.treat_whitespace_as_suffix, "spaces written after words (treat_whitespace_as_suffix)"),
        (not model.escape_whitespaces, "spaces that are not written as ▁ (escape_whitespaces is off)"),
        (model.denormalizes, "a denormalizer"),
        (model.model_type is ModelType.WORD, "a word model, which joins adjacent unknown words"),
    ):
        if unsupported:
            raise ValueError(f"it uses {what}, which qkv doesn't support")
    pieces = [*model.pieces, *extra]
    _check(pieces, model)
    raw = tokenizers.Tokenizer(_model(model, pieces))
    defined = [piece.text for piece in pieces if piece.kind is PieceKind.USER_DEFINED]
    words = all(SPACE not in piece.text[1:] for piece in pieces) and not any(SPACE in symbol for symbol in defined)
    raw.normalizer = _normalizer(model, defined, words)
    if words:
        raw.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="never")
    raw.decoder = _decoder(model)
    raw.add_special_tokens(
        [
            AddedToken(piece.text, special=True, normalized=False)
            for piece in pieces
            if piece.kind in (PieceKind.CONTROL, PieceKind.UNKNOWN)
        ]
    )
    raw.add_tokens([AddedToken(text, special=False, normalized=True) for text in defined])
    return raw


def _check(pieces: list[Piece], model: SentencePiece) -> None:
    seen: set[str] = set()
    for piece in pieces:
        if piece.text in seen:
            raise ValueError(f"it has the piece {brief(piece.text)} twice")
        seen.add(piece.text)
    if not 0 <= model.unk_id < len(pieces) or pieces[model.unk_id].kind is not PieceKind.UNKNOWN:
        raise ValueError(f"its unknown piece has the id {model.unk_id}, which is not that of a piece of type UNKNOWN")
    if model.byte_fallback and not seen.issuperset(BYTES):
        raise ValueError("it falls back to bytes, but lacks some of the pieces <0x00> to <0xFF>")


# -- the model ------------------------------------------------------------------------------------------------------


def _model(model: SentencePiece, pieces: list[Piece]) -> models.Model:
    unk = pieces[model.unk_id].text
    ids = {piece.text: i for i, piece in enumerate(pieces)}
    if model.model_type is ModelType.UNIGRAM:
        return models.Unigram([(piece.text, piece.score) for piece in pieces], model.unk_id, model.byte_fallback)
    merges = merges_of(pieces) if model.model_type is ModelType.BPE else []
    return models.BPE(ids, merges, unk_token=unk, fuse_unk=True, byte_fallback=model.byte_fallback)


def merges_of(pieces: list[Piece]) -> list[tuple[str, str]]:
    """Return the merges of a BPE model, which SentencePiece stores as scores.

    SentencePiece merges the two neighbors whose concatenation is the piece with the highest score, so every way to cut a
    piece into two pieces is a merge with the piece's rank.
    """
    spelled = {
        piece.text: i for i, piece in enumerate(pieces) if piece.kind in (PieceKind.NORMAL, PieceKind.USER_DEFINED)
    }
    ranked = sorted((piece for piece in pieces if piece.kind is PieceKind.NORMAL), key=lambda piece: -piece.score)
    return [
        (piece.text[:i], piece.text[i:])
        for piece in ranked
        for i in range(1, len(piece.text))
        if piece.text[:i] in spelled and piece.text[i:] in spelled
    ]


# -- normalization and decoding ---------------------------------------------------------------------------------------


def _normalizer(model: SentencePiece, defined: list[str], words: bool) -> normalizers.Normalizer:
    r"""Return the stages of SentencePiece's `Normalizer::Normalize`. `\A` and `\z` are the ends of the text, not of a line.

    If the text is cut into words (`words`), the pre-tokenizer writes the `▁`, which is faster.
    """
    stages: list[normalizers.Normalizer] = []
    if model.precompiled_charsmap:
        stages += _characters(model.precompiled_charsmap)
    if model.remove_extra_whitespaces:
        stages += [normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if model.add_dummy_prefix:
        stages.append(_prefix(defined))
    if model.remove_extra_whitespaces:
        stages.append(normalizers.Replace(Regex(rf"[ {SPACE}]+\z"), ""))
    if not words:
        stages.append(normalizers.Replace(" ", SPACE))
    return normalizers.Sequence(stages)


def _characters(charsmap: bytes) -> list[normalizers.Normalizer]:
    """Return the stages that apply the model's character table.

    The library looks up a character together with its combining marks, and misses or drops some that SentencePiece
    composes (decomposed Hangul, Vietnamese and kana, as in file names on macOS). If the table composes, the text is
    therefore normalized to NFC before and after, and the remaining marks are separated from their characters by a
    noncharacter in between. A mark at the start of the text is not separated, because the library's table fails on a text
    to which an earlier stage has prepended something.
    """
    table = normalizers.Precompiled(charsmap)
    if table.normalize_str(_APART) not in _TOGETHER:
        return [table]
    part, join = normalizers.Replace(Regex(r"(?<=[\s\S])(?=[\p{M}\u200d])"), _NONE), normalizers.Replace(_NONE, "")
    return [normalizers.NFC(), part, table, join, normalizers.NFC()]


def _prefix(defined: list[str]) -> normalizers.Normalizer:
    """Return the stage that prepends a space, except to user-defined symbols, which the library normalizes too."""
    if not defined:
        return normalizers.Prepend(SPACE)
    symbols = "|".join(map(re.escape, defined))
    return normalizers.Replace(Regex(rf"\A(?=[\s\S])(?!(?:{symbols})\z)"), SPACE)


def _decoder(model: SentencePiece) -> decoders.Decoder:
    stages: list[Any] = [decoders.Replace(SPACE, " ")]
    if model.byte_fallback:
        stages.append(decoders.ByteFallback())
    stages.append(decoders.Fuse())
    if model.add_dummy_prefix:
        stages.append(decoders.Strip(content=" ", left=_ALL if model.remove_extra_whitespaces else 1, right=0))
    return decoders.Sequence(stages)
