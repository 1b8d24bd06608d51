"""Grammars: outputs that a JSON schema, a regular expression or a list of choices allows, and nothing else.

Before each token, the library llguidance says which tokens may follow; all others are forbidden. An output that is complete
can only end. One that reaches `max_new_tokens` is cut off, and is then the beginning of an allowed output.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..core.several import texts
from ..core.spec import brief
from ..data.optional_libraries import optional_library
from ..data.tokenizers.tokenizer import Tokenizer

LARGEST = 64 << 10  # characters of a schema, an expression or all choices
_REMEMBERED = 1024  # places in outputs


@dataclass(frozen=True)
class Grammar:
    """What outputs may be, in llguidance's own form. Raises ValueError for what is no grammar, or a huge one."""

    source: str

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | str) -> Self:
        """Any JSON that a JSON schema allows, without spaces between its parts. `{}` allows all JSON."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        _check_size("the JSON schema", text)
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the JSON schema is not JSON: {str(error)[:200]}") from None
        if not isinstance(parsed, dict):
            raise ValueError(f"a JSON schema is an object, not {brief(parsed)}")
        options = {"whitespace_flexible": False}
        return cls(_library().LLMatcher.grammar_from_json_schema(json.dumps(parsed), overrides=options))._checked()

    @classmethod
    def regex(cls, expression: str) -> Self:
        """Any text that matches a regular expression as a whole (Rust's syntax: no look-around, no back-references)."""
        _check_size("the regular expression", expression)
        return cls(_library().LLMatcher.grammar_from_regex(expression))._checked()

    @classmethod
    def choices(cls, choices: Sequence[str]) -> Self:
        """One of some texts."""
        choices = texts(choices, "choices")
        if not choices or not all(choices):
            raise ValueError("choices are texts that are not empty, and there is at least one")
        return cls.regex("|".join(f"(?:{re.escape(choice)})" for choice in choices))

    def _checked(self) -> Self:
        message = _library().LLMatcher.validate_grammar(self.source)
        if message and not message.startswith("WARNING"):
            raise ValueError(f"the grammar can't be used: {' '.join(message.split())[:300]}")
        return self

    def processor(self, words: Tokenizer, vocab_size: int, ends: Sequence[int], width: int) -> AllowedTokens:
        """A processor for prompts of `width` columns. Raises ValueError for a tokenizer without known bytes."""
        return AllowedTokens(_library().LLMatcher(_tokens_of(words, vocab_size, ends), self.source, log_level=0), width)


class AllowedTokens:
    """Forbids the tokens that a grammar does not allow after those of each row."""

    def __init__(self, start: Any, width: int) -> None:
        self.width = width
        _raise_error(start)
        self._states: OrderedDict[tuple[int, ...], Any] = OrderedDict([((), start)])

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

    def _state(self, tokens: tuple[int, ...]) -> Any:
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


def _raise_error(state: Any) -> None:
    if state.is_error():
        raise ValueError(f"the grammar can't be used: {' '.join(state.get_error().split())[:300]}")


def _check_size(what: str, text: str) -> None:
    if len(text) > LARGEST:
        raise ValueError(f"{what} has {len(text):,} characters, and at most {LARGEST:,} are allowed")


def _library() -> Any:
    return optional_library("grammar", "generating by a grammar", "llguidance")


_KNOWN: WeakKeyDictionary[Tokenizer, dict[tuple[int, tuple[int, ...]], Any]] = WeakKeyDictionary()


def _tokens_of(words: Tokenizer, vocab_size: int, ends: Sequence[int]) -> Any:
    """The tokens as llguidance knows them, made once for a tokenizer."""
    if not ends:
        raise ValueError("a grammar needs a token that ends outputs, and this tokenizer has none")
    known, key = _KNOWN.setdefault(words, {}), (vocab_size, tuple(ends))
    if key not in known:
        try:
            known[key] = _library().LLTokenizer(words.to_json(), n_vocab=vocab_size, eos_token=list(ends))
        except ValueError as error:
            raise ValueError(
                f"grammars are for tokenizers of bytes (byte-level BPE, or SentencePiece with bytes), and {words.name} is "
                f"none: {' '.join(str(error).split())[:160]}"
            ) from None
    return known[key]
