"""Classes of tokens in a vocabulary: which begin words, which end sentences, which are special."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ....data.batching.ragged import Ids, Ragged
from ....data.tokenizers.pipelines import CONTINUES
from ....data.tokenizers.tokenizer import Tokenizer
from .corruption import Flags, begins_of

_CLOSING = "\"'`)]}▁”’»"  # closing characters after the end of a sentence
_LINE_END = "↵"  # as `Tokenizer.tokens` shows it


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Classes of the ids of a vocabulary.

    ordinary: the ids of text, which are neither control tokens nor markers.
    joins, opens: a token that `joins` continues the word of a token before it that `opens`.
    ends:     whether a token ends a sentence.
    """

    ordinary: Ids
    joins: Flags
    opens: Flags
    ends: Flags

    def words(self, rows: Ragged) -> Flags:
        """Flag the tokens that begin words, in rows without gaps."""
        ids = rows.flat
        return begins_of(rows, ~(np.append(self.joins[ids[1:]], False) & self.opens[ids])) if len(ids) else ids > 0

    def sentences(self, rows: Ragged) -> Flags:
        """Flag the tokens that begin sentences."""
        return begins_of(rows, self.ends[rows.flat])


@lru_cache(maxsize=8)
def lexicon(tokenizer: Tokenizer, ends: tuple[str, ...] = (".", "!", "?", "\n")) -> Lexicon:
    """Build the lexicon of a tokenizer. A sentence ends with a token that ends in one of `ends`, ignoring closing brackets
    and quotes, or that contains the end of a line, if that is one of `ends`."""
    shown = tokenizer.tokens(range(tokenizer.vocab_size))
    special = {*tokenizer.controls.values(), *(tokenizer.id(marker) for marker in tokenizer.markers)}
    ordinary = [i for i, token in enumerate(shown) if token and i not in special]
    marks = tuple(end for end in ends if end != "\n")

    def closes(token: str) -> bool:
        return ("\n" in ends and _LINE_END in token) or (bool(marks) and token.rstrip(_CLOSING).endswith(marks))

    kind = tokenizer.kind
    if kind == "wordpiece":
        joins = [token.startswith(CONTINUES) for token in shown]
        opens = [True] * len(shown)
    else:
        joins = [kind != "word" and _of_word(token[:1], token) for token in shown]
        opens = [_of_word(token[-1:], token) for token in shown]
    final = [i not in special and closes(token) for i, token in enumerate(shown)]
    return Lexicon(np.asarray(ordinary, np.int32), _flags(joins), _flags(opens), _flags(final))


def _of_word(character: str, token: str) -> bool:
    """Whether a character at the end of a token is part of a word: a letter, a digit, or a byte of a character."""
    return character.isalnum() or character == "_" or (token.startswith("<0x") and token.endswith(">"))


def _flags(values: list[bool]) -> NDArray[np.bool_]:
    return np.asarray(values, bool)
