"""Prompt look-up: propose what followed the newest n-gram where it occurred before (Saxena 2023)."""

from __future__ import annotations

from collections.abc import Sequence

from ..speculation import PromptLookup
from .proposals import Proposals
from .rows import Continuation

LONGEST = 32  # tokens of context that are compared to choose among occurrences


class LookupProposer:
    """Looks up every row in its own text: the source of an encoder–decoder, the prompt, and the new tokens.

    A copy continues after a rejected token, as if that token had been replaced, unless the newest n-gram occurs elsewhere
    with more of the same context.
    """

    def __init__(self, kind: PromptLookup, vocab_size: int, sources: Sequence[Sequence[int]] | None = None) -> None:
        self.kind, self.vocab_size, self.sources = kind, vocab_size, sources
        self.texts: dict[int, _Text] = {}  # by the row's index
        self.active: list[_Text] = []

    def propose(self, rows: Sequence[Continuation], most: Sequence[int]) -> Proposals:
        self.active = [self._text(row) for row in rows]
        return Proposals(
            [text.propose(min(n, self.kind.num_speculative_tokens)) for text, n in zip(self.active, most, strict=True)]
        )

    def _text(self, row: Continuation) -> _Text:
        text = self.texts.get(row.index)
        if text is None:
            source = self.sources[row.index] if self.sources else ()
            text = self.texts[row.index] = _Text(self.kind, self.vocab_size)
            text.extend(source)
            text.separate()
        text.extend(row.tail(text.seen))
        return text

    def checked(self, accepted: Sequence[int], going: Sequence[int]) -> None:
        for text, count in zip(self.active, accepted, strict=False):  # none before the first proposals
            text.checked(count)


class _Text:
    """A text with an index of its n-grams: for each, the place after its latest occurrence that something followed."""

    def __init__(self, kind: PromptLookup, vocab_size: int) -> None:
        self.sizes = range(kind.max_ngram, kind.min_ngram - 1, -1)
        self.vocab_size = vocab_size
        self.tokens: list[int] = []
        self.begin = 0  # where the row begins, after its source
        self.after: dict[tuple[int, ...], int] = {}
        self.copied: int | None = None  # where the tokens of the last proposal were copied from

    @property
    def seen(self) -> int:
        """How many tokens of the row are here."""
        return len(self.tokens) - self.begin

    def separate(self) -> None:
        """End the source; no n-gram continues from it into the row."""
        if self.tokens:
            self.tokens.append(-1)
        self.begin = len(self.tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Add tokens, and index the n-grams before each."""
        for token in tokens:
            end = len(self.tokens)
            for n in self.sizes:
                if n <= end:
                    self.after[tuple(self.tokens[end - n :])] = end
            self.tokens.append(token)

    def propose(self, most: int) -> list[int]:
        """Return at most `most` tokens that may follow."""
        end = len(self.tokens)
        places = [self.after.get(tuple(self.tokens[end - n :])) for n in self.sizes if n <= end]
        contexts = [(self._context(place), place) for place in [self.copied, *places] if place is not None]
        shared, place = max(contexts, key=lambda pair: pair[0], default=(0, 0))
        self.copied = place if shared >= self.sizes[-1] else None
        if self.copied is None:
            return []
        proposed: list[int] = []
        for at in range(place, place + most):
            token = self.tokens[at] if at < end else proposed[at - end]  # a copy may overlap itself
            if not 0 <= token < self.vocab_size:
                break
            proposed.append(token)
        return proposed

    def _context(self, place: int) -> int:
        """How many tokens before `place` are those at the end of the text."""
        shared = 0
        while shared < min(place, LONGEST) and self.tokens[place - 1 - shared] == self.tokens[-1 - shared]:
            shared += 1
        return shared

    def checked(self, accepted: int) -> None:
        """Continue after the accepted tokens and the token that replaced a rejected one."""
        if self.copied is not None:
            self.copied += accepted + 1
