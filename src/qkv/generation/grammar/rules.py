"""Grammars: outputs that a JSON schema, a regular expression or a list of choices allows, and nothing else.

Before each token, the library llguidance says which tokens may follow; all others are forbidden. An output that is complete
can only end. One that reaches `max_new_tokens` is cut off, and is then the beginning of an allowed output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ...core.several import texts
from ...core.spec import brief
from ...data.tokenizers.tokenizer import Tokenizer
from .allowed import AllowedTokens, library, tokens_of

LARGEST = 64 << 10  # characters of a schema, an expression or all choices


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
        return cls(library().LLMatcher.grammar_from_json_schema(json.dumps(parsed), overrides=options))._checked()

    @classmethod
    def regex(cls, expression: str) -> Self:
        """Any text that matches a regular expression as a whole (Rust's syntax: no look-around, no back-references)."""
        _check_size("the regular expression", expression)
        return cls(library().LLMatcher.grammar_from_regex(expression))._checked()

    @classmethod
    def lark(cls, rules: str) -> Self:
        """Any text that a grammar in llguidance's variant of Lark's notation allows, from its rule `start`."""
        _check_size("the grammar", rules)
        return cls(library().LLMatcher.grammar_from_lark(rules))._checked()

    @classmethod
    def choices(cls, choices: Sequence[str]) -> Self:
        """One of some texts."""
        choices = texts(choices, "choices")
        if not choices or not all(choices):
            raise ValueError("choices are texts that are not empty, and there is at least one")
        return cls.regex("|".join(f"(?:{re.escape(choice)})" for choice in choices))

    def _checked(self) -> Self:
        message = library().LLMatcher.validate_grammar(self.source)
        if message and not message.startswith("WARNING"):
            raise ValueError(f"the grammar is not valid: {' '.join(message.split())[:300]}")
        return self

    def processor(self, words: Tokenizer, vocab_size: int, ends: Sequence[int], width: int) -> AllowedTokens:
        """A processor for prompts of `width` columns. Raises ValueError for a tokenizer without known bytes."""
        return AllowedTokens(library().LLMatcher(tokens_of(words, vocab_size, ends), self.source, log_level=0), width)


def _check_size(what: str, text: str) -> None:
    if len(text) > LARGEST:
        raise ValueError(f"{what} has {len(text):,} characters, and at most {LARGEST:,} are allowed")
