"""Character offsets of tokens: which tokens belong to a word or a span of characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...data.batching.ragged import Index
from ...data.tokenizers.protocol import Encoder
from ...data.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class Pieces:
    """The tokens of one text.

    ids:    of each token.
    starts: the first character of each token that is not white space; the text's length if there is none.
    ends:   the character after its last.
    """

    ids: list[int]
    starts: Index
    ends: Index

    def __len__(self) -> int:
        return len(self.ids)


def pieces_of(texts: Sequence[str], tokenizer: Encoder | None) -> list[Pieces]:
    """Tokenize texts with character offsets. Raises ValueError if there is no tokenizer that knows offsets."""
    if not isinstance(tokenizer, Tokenizer):
        raise ValueError("tasks that label words or find spans need a tokenizer that says where its tokens stand")
    try:
        encoded = tokenizer.raw.encode_batch(list(texts), add_special_tokens=False)
    except Exception:
        tokenizer.encode_batch(list(texts))  # raises the same as a ValueError that names the text
        raise
    return [_pieces(text, e.ids, e.offsets) for text, e in zip(texts, encoded, strict=True)]


def _pieces(text: str, ids: list[int], offsets: list[tuple[int, int]]) -> Pieces:
    starts, ends = np.array(offsets, np.int64).reshape(-1, 2).T
    return Pieces(ids, visible(text)[starts], ends)


def visible(text: str) -> Index:
    """(n + 1,): for each position in a text, the next position that is not white space; n if there is none."""
    n = len(text)
    own = np.fromiter((i if not c.isspace() else n for i, c in enumerate(text)), np.int64, n)
    return np.minimum.accumulate(np.append(own, n)[::-1])[::-1]
