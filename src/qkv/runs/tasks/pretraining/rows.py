"""Rows of text for pre-training: how texts are cut, the room in a row, the mask token, texts left out."""

from __future__ import annotations

import numpy as np

from ....data.batching.ragged import Index, Ragged
from ....data.source import Counts
from ....data.task import RandomContext
from ....data.tokenizers.protocol import Encoder
from ....data.tokenizers.tokenizer import Tokenizer
from .corruption import Flags, windows

TOO_SHORT = "with fewer than two tokens"


def mask_of(tokenizer: Encoder | None) -> int:
    """Return the id of the mask token. Raises ValueError if there is none."""
    if not isinstance(tokenizer, Tokenizer) or tokenizer.mask_id is None:
        name = "none at all" if not isinstance(tokenizer, Tokenizer) else f"{tokenizer.name}, has none"
        raise ValueError(
            f"the task needs a tokenizer with a mask token, and this one, {name}; give it one as tokenizer.mask=<mask>"
        )
    return tokenizer.mask_id


def room_for(context: int, around: int) -> int:
    """Return the number of text tokens in a row, without special tokens. Raises ValueError if there are fewer than four."""
    if context - around < 4:
        raise ValueError(
            f"batching.context is {context}, and a row needs {around} for special tokens; raise it to {around + 4} or more"
        )
    return context - around


def cut_rows(texts: Ragged, room: int, randomness: RandomContext, counts: Counts) -> tuple[Ragged, Index]:
    """Cut texts into rows of at most `room` tokens, at random in training; also return the text of each row. Texts of fewer
    than two tokens are counted as skipped."""
    leave_out(counts, TOO_SHORT, texts.lengths < 2)
    return windows(texts, room, randomness.generator if randomness.training else None)


def leave_out(counts: Counts, reason: str, which: Flags | int) -> None:
    """Count texts that are in no row as skipped."""
    n = int(np.sum(which))
    if n:
        counts.skipped[reason] += n
