"""Rows of pre-training: room for text, the mask token, and texts that are too short."""

from __future__ import annotations

import numpy as np

from ...data.source import Counts
from ...tokenizers.protocol import Encoder
from ...tokenizers.tokenizer import Tokenizer
from .corruption import Flags

TOO_SHORT = "with fewer than two tokens"


def mask_of(tokenizer: Encoder | None) -> int:
    """The token that hides another. Raises ValueError where there is none."""
    if not isinstance(tokenizer, Tokenizer) or tokenizer.mask_id is None:
        name = "none at all" if not isinstance(tokenizer, Tokenizer) else f"{tokenizer.name}, has none"
        raise ValueError(
            f"the task needs a tokenizer with a mask token, and this one, {name}; give it one by tokenizer.mask=<mask>"
        )
    return tokenizer.mask_id


def room_for(context: int, around: int) -> int:
    """Tokens of text in a row. Raises ValueError where these are fewer than four."""
    if context - around < 4:
        raise ValueError(
            f"batching.context is {context}, and {around} tokens stand around a row's text; raise it to {around + 4} or more"
        )
    return context - around


def leave_out(counts: Counts, reason: str, which: Flags | int) -> None:
    """Count texts that are in no row."""
    n = int(np.sum(which))
    if n:
        counts.skipped[reason] += n
