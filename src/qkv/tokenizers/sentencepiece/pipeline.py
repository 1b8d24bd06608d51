"""Converts a SentencePiece model to a pipeline of the `tokenizers` library that gives the same ids.

SentencePiece normalizes a text as a whole, writes its spaces as `▁`, puts one before it, and gives that to the model at
once. Where no piece holds a `▁` but at its beginning, cutting the text before every `▁` changes nothing, and lets the
library remember words; else the model gets the whole text here too.
"""

from __future__ import annotations

import re
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from ..pipelines import BYTES
from .model_file import Kind, ModelType, Piece, SentencePiece

SPACE = "▁"
_APART, _TOGETHER = "e\u0301 \u212b \u2126", ("\u00e9 \u00c5 \u03a9", "\u00e9 \u00e5 \u03c9")  # cased, case-folded
_NONE = "\ufdd0"  # a code that Unicode keeps from ever being a character
_ALL = 1 << 16  # spaces


def pipeline(model: SentencePiece, extra: tuple[Piece, ...] = ()) -> tokenizers.Tokenizer:
    """The library's tokenizer. Control tokens and user-defined symbols are added tokens, special and not.

    Args:
        extra: pieces that follow those of the file, such as T5's sentinels.

    Raises ValueError for models that work in a way the library has no stage for.
    """
    for unsupported, what in (
        (model.treat_whitespace_as_suffix, "spaces written after words (treat_whitespace_as_suffix)"),
        (not model.escape_whitespaces, "spaces that are not written as ▁ (escape_whitespaces is off)"),
        (model.denormalizes, "a denormalizer"),
        (model.model_type is ModelType.WORD, "a word model, which makes one unknown of unknown words side by side"),
    ):
        if unsupported:
            raise ValueError(f"it uses {what}, which can't be read here")
    pieces = [*model.pieces, *extra]
    _check(pieces, model)
    raw = tokenizers.Tokenizer(_model(model, pieces))
    defined = [piece.text for piece in pieces if piece.kind is Kind.USER_DEFINED]
    words = all(SPACE not in piece.text[1:] for piece in pieces) and not any(SPACE in symbol for symbol in defined)
    raw.normalizer = _normalizer(model, defined, words)
    if words:
        raw.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="never")
    raw.decoder = _decoder(model)
    raw.add_special_tokens(
        [
            AddedToken(piece.text, special=True, normalized=False)
            for piece in pieces
            if piece.kind in (Kind.CONTROL, Kind.UNKNOWN)
        ]
    )
    raw.add_tokens([AddedToken(text, special=False, normalized=True) for text in defined])
    return raw


def _check(pieces: list[Piece], model: SentencePiece) -> None:
    seen: set[str] = set()
    for piece in pieces:
        if piece.text in seen:
            raise ValueError(f"it has the piece {piece.text!r} twice")
        seen.add(piece.text)
    if not 0 <= model.unk_id < len(pieces) or pieces[model.unk_id].kind is not Kind.UNKNOWN:
        raise ValueError(f"its piece {model.unk_id}, the unknown one, is not among its pieces")
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
    """The merges of a BPE model, which SentencePiece keeps as scores.

    It joins the two neighbors whose join is the piece of the highest score, however they came about: so every way to
    cut a piece into two pieces is a merge, with the piece's rank.
    """
    spelled = {piece.text: i for i, piece in enumerate(pieces) if piece.kind in (Kind.NORMAL, Kind.USER_DEFINED)}
    ranked = sorted((piece for piece in pieces if piece.kind is Kind.NORMAL), key=lambda piece: -piece.score)
    return [
        (piece.text[:i], piece.text[i:])
        for piece in ranked
        for i in range(1, len(piece.text))
        if piece.text[:i] in spelled and piece.text[i:] in spelled
    ]


# -- around it ------------------------------------------------------------------------------------------------------


def _normalizer(model: SentencePiece, defined: list[str], words: bool) -> normalizers.Normalizer:
    r"""The stages of SentencePiece's `Normalizer::Normalize`. `\A` and `\z` are the ends of the text, not of a line.

    Where the text is cut into words, the cutter writes the `▁`, which is faster.
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
    """The model's table of characters.

    The library looks up characters with their combining marks as one, and misses or drops some that SentencePiece
    composes (Hangul, Vietnamese and kana written apart, as file names on macOS are). Where the table is one that
    composes, the text is composed before and after, and marks that are left are parted from their characters meanwhile, by
    one that is none. A mark that begins the text has nothing to be parted from, and the library's table fails on a text
    that a stage before has put something in front of.
    """
    table = normalizers.Precompiled(charsmap)
    if table.normalize_str(_APART) not in _TOGETHER:
        return [table]
    part, join = normalizers.Replace(Regex(r"(?<=[\s\S])(?=[\p{M}\u200d])"), _NONE), normalizers.Replace(_NONE, "")
    return [normalizers.NFC(), part, table, join, normalizers.NFC()]


def _prefix(defined: list[str]) -> normalizers.Normalizer:
    """The space before the text. The library normalizes user-defined symbols too, to find them: they get none."""
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
