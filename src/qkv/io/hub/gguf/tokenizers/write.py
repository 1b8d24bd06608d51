"""A tokenizer as GGUF metadata: the kind that llama.cpp has for it, tokens with their types, special tokens."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np

from .....data.tokenizers.tokenizer import Tokenizer
from . import byte_level_bpe, sentencepiece, wordpiece
from .vocabulary import ADD_BOS, MODEL, TOKENS, TYPES, around_metadata, roles_metadata, tokens_and_types


def tokenizer_metadata(
    tokenizer: Tokenizer | None, vocab_size: int, around: tuple[list[int], list[int]], architecture: str
) -> dict[str, Any]:
    """The metadata of a tokenizer; without one, the size of the vocabulary.

    around: the special tokens before and after a text.

    Raises ValueError naming what llama.cpp's tokenizers can't do, or what qkv doesn't write; warns about texts that
    llama.cpp would cut otherwise.
    """
    if tokenizer is None:
        return {MODEL: "none", f"{architecture}.vocab_size": vocab_size}
    data = json.loads(tokenizer.raw.to_str())
    notes: list[str] = []
    tokens, types = tokens_and_types(tokenizer, vocab_size)
    if byte_level_bpe.fits(data):
        kind = byte_level_bpe.to_metadata(data, notes)
    elif tokenizer.kind in ("bpe", "unigram"):
        kind = sentencepiece.to_metadata(data, tokenizer.raw, tokens, types, tokenizer.unk_id, notes)
    elif tokenizer.kind == "wordpiece":
        kind = wordpiece.to_metadata(data, tokens, types)
        _check_around(tokenizer, around)
        words = {TOKENS: tokens, TYPES: np.array(types, np.int32), ADD_BOS: True, wordpiece.ADD_SEP: True}
        return {**kind, **words, **roles_metadata(tokenizer, wordpiece.roles_of)}
    else:
        raise ValueError(
            f"qkv writes no GGUF tokenizers of the kind {tokenizer.kind!r}, which this model has; train with "
            "tokenizer.kind=bpe (byte-level)"
        )
    for note in notes:
        warnings.warn(note, stacklevel=4)
    words = {TOKENS: tokens, TYPES: np.array(types, np.int32)}
    return {**kind, **words, **roles_metadata(tokenizer), **around_metadata(tokenizer, *around)}


def _check_around(tokenizer: Tokenizer, around: tuple[list[int], list[int]]) -> None:
    """Raise ValueError unless [CLS] and [SEP] stand around a text."""
    if around != ([tokenizer.cls_id], [tokenizer.sep_id]):
        names = [" ".join(tokenizer.tokens(ids)) or "nothing" for ids in around]
        raise ValueError(
            f"llama.cpp puts the cls and the sep token around a text for WordPiece, and this model has {names[0]} before "
            f"and {names[1]} after it"
        )
