"""Computes which tokens a grammar allows next in each row, with llguidance."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...core.optional_libraries import optional_library
from ...data.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_REMEMBERED = 1024  # places in outputs


class AllowedTokens:
    """Forbids the tokens that a grammar does not allow next in each row."""

    def __init__(self, start: LLMatcher, width: int) -> None:
        self.width = width
        _raise_error(start)
        start.compute_bitmask()  # so a grammar that allows nothing is refused now
        _raise_error(start)
        self._states: OrderedDict[tuple[int, ...], LLMatcher | None] = OrderedDict([((), start)])

    def __call__(self, ids: Int[Tensor, "N T"], logits: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
        allowed = [self._allowed(tuple(row), logits.shape[1]) for row in ids[:, self.width :].tolist()]
        return logits.masked_fill(~torch.from_numpy(np.stack(allowed)).to(logits.device), -torch.inf)

    def _allowed(self, tokens: tuple[int, ...], vocab_size: int) -> np.ndarray:
        state = self._state(tokens)
        if state is None:
            return np.ones(vocab_size, bool)
        bits = np.frombuffer(state.compute_bitmask(), np.uint8)
        _raise_error(state)
        return np.unpackbits(bits, bitorder="little")[:vocab_size].astype(bool)

    def _state(self, tokens: tuple[int, ...]) -> LLMatcher | None:
        """The state after some tokens, from the nearest one that is remembered.

        None if they are not allowed: the row is a beam without any probability, which nothing changes.
        """
        known = len(tokens)
        while tokens[:known] not in self._states:
            known -= 1
        self._states.move_to_end(tokens[:known])
        state = self._states[tokens[:known]]
        if known < len(tokens) and state is not None:
            state = state.deep_copy()
            if not state.consume_tokens(list(tokens[known:])):
                state = None
        self._states[tokens] = state
        while len(self._states) > _REMEMBERED:
            oldest = next(key for key in self._states if key)
            del self._states[oldest]
        return state


def _raise_error(state: LLMatcher) -> None:
    if state.is_error():
        said = " ".join(state.get_error().partition("<state>")[0].split())[:300]
        said = "it allows no token, as one does that refers only to itself" if said == "NoExtensionBias" else said
        raise ValueError(f"the grammar is not valid: {said}")


def library() -> ModuleType:
    """The library llguidance. Raises ValueError if it is not installed."""
    return optional_library("generating by a grammar", "llguidance")


_KNOWN: WeakKeyDictionary[Tokenizer, dict[tuple[int, tuple[int, ...]], LLTokenizer]] = WeakKeyDictionary()


def tokens_of(words: Tokenizer, vocab_size: int, ends: Sequence[int]) -> LLTokenizer:
    """The tokens as llguidance knows them, made once for a tokenizer."""
    if not ends:
        raise ValueError("a grammar needs a token that ends outputs, and this tokenizer has none")
    known, key = _KNOWN.setdefault(words, {}), (vocab_size, tuple(ends))
    if key not in known:
        try:
            known[key] = library().LLTokenizer(words.to_json(), n_vocab=vocab_size, eos_token=list(ends))
        except ValueError as error:
            raise ValueError(
                f"grammars are for tokenizers of bytes (byte-level BPE, or SentencePiece with bytes), and {words.name} is "
                f"none: {' '.join(str(error).split())[:160]}"
            ) from None
    return known[key]
