"""When a generated row ends: end-of-sequence tokens, stop strings, the caller's own rule, the length limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .logits_processors import Processor
from .result import Reason
from .settings import Generation

Stop = Callable[[list[int]], bool]  # whether a row with these new tokens ends here


class StopStrings:
    """A stopping rule: a row ends once its text, as `decode` gives it, contains one of the strings."""

    def __init__(self, decode: Callable[[list[int]], str], strings: Sequence[str]) -> None:
        if not all(strings):
            raise ValueError("a stop text is empty; give the text at which an output is to end")
        self.decode, self.strings = decode, tuple(strings)

    def __call__(self, tokens: list[int]) -> bool:
        text = self.decode(tokens)
        return any(string in text for string in self.strings)


def cut_at(text: str, strings: Sequence[str]) -> str:
    """The text before the first of the stop strings in it."""
    return text[: min((at for string in strings if (at := text.find(string)) >= 0), default=len(text))]


@dataclass(frozen=True)
class SearchOptions:
    """What a search follows: settings, processors and stopping rules. `log_probs`: keep each token's log-probability."""

    settings: Generation
    processors: Sequence[Processor] = ()
    eos: frozenset[int] = frozenset()
    stop: Stop | None = None
    log_probs: bool = False

    def ending(self, tokens: list[int], limit: int) -> Reason | None:
        """Why a row with these new tokens ends, if it does."""
        if tokens[-1] in self.eos:
            return "eos"
        if self.stop is not None and self.stop(tokens):
            return "stop"
        return "length" if len(tokens) >= limit else None
