"""Stopping criteria: end-of-sequence tokens, stop strings, the caller's own rule, the length limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..core import several
from .logits_processors import Processor
from .result import Reason
from .settings import Generation

Stop = Callable[[list[int]], bool]  # called with a row's new tokens; True ends it


class StopStrings:
    """A stopping rule: a row ends when its decoded text contains one of the strings."""

    def __init__(self, decode: Callable[[list[int]], str], strings: str | Sequence[str]) -> None:
        strings = several.texts(strings, "stop strings")
        if not all(strings):
            raise ValueError("a stop string is empty; give the text that ends an output")
        self.decode, self.strings = decode, tuple(strings)

    def __call__(self, tokens: list[int]) -> bool:
        text = self.decode(tokens)
        return any(string in text for string in self.strings)


def cut_at(text: str, strings: Sequence[str]) -> str:
    """Return the text before the first of several stop strings in it."""
    return text[: min((at for string in strings if (at := text.find(string)) >= 0), default=len(text))]


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search. `log_probs`: keep each token's log-probability."""

    settings: Generation
    processors: Sequence[Processor] = ()
    eos: frozenset[int] = frozenset()
    stop: Stop | None = None
    log_probs: bool = False

    def ending(self, tokens: list[int], limit: int) -> Reason | None:
        """Return why a row with these new tokens ends, or None if it doesn't."""
        if tokens[-1] in self.eos:
            return "eos"
        if self.stop is not None and self.stop(tokens):
            return "stop"
        return "length" if len(tokens) >= limit else None
