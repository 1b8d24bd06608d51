"""What a search obeys: its settings, its processors, and when a row ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .logits_processors import Processor
from .result import Reason
from .settings import Generation

Stop = Callable[[list[int]], bool]  # of a row's new tokens: does it end here?


@dataclass(frozen=True)
class Rules:
    """`log_probs` says whether each token's log-probability is kept."""

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
