"""Decoding of CTC: the likeliest alignment, and prefix beam search, with a language model if there is one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from jaxtyping import Float
from torch import Tensor

from ..core import several


class PrefixScore(Protocol):
    """What a language model adds to the log-probability of a prefix; `ended` is true for a whole text."""

    def __call__(self, symbols: tuple[int, ...], ended: bool, /) -> float: ...


class PrefixHypothesis(NamedTuple):
    """A text of prefix beam search: its symbols, log p(y | x), and the score by which it was chosen."""

    symbols: tuple[int, ...]
    log_probability: float
    score: float


class Spelled(NamedTuple):
    """A symbol of the likeliest alignment, and its frames first … last."""

    symbol: int
    first: int
    last: int


def collapsed(path: Sequence[int], blank: int) -> list[int]:
    """The symbols of an alignment: repeats merged, then blanks removed."""
    return [one.symbol for one in spelled(path, blank)]


def spelled(path: Sequence[int], blank: int) -> list[Spelled]:
    """The symbols of an alignment with their frames."""
    found: list[Spelled] = []
    before = blank
    for frame, symbol in enumerate(path):
        if symbol == before and symbol != blank:
            found[-1] = found[-1]._replace(last=frame)
        elif symbol != blank:
            found.append(Spelled(symbol, frame, frame))
        before = symbol
    return found


def greedy(logits: Float[Tensor, "B T V"], lengths: Sequence[int], blank: int) -> list[list[int]]:
    """The symbols of each row's likeliest alignment (best path decoding, Graves et al. 2006, §3.2); row b has `lengths[b]`
    frames."""
    paths = logits.argmax(-1).tolist()
    return [collapsed(path[:length], blank) for path, length in zip(paths, lengths, strict=True)]


def prefix_beam_search(
    log_probs: Float[Tensor, "T V"],
    blank: int,
    *,
    beams: int = 16,
    score: PrefixScore | None = None,
    least: float = -12.0,
) -> list[PrefixHypothesis]:
    """The best texts of one row, best first, at most `beams` (Graves et al. 2006, §3.2; Hannun et al. 2014).

    Each prefix ℓ has p_b(ℓ) and p_n(ℓ), the sums over all alignments so far that end in the blank and in ℓ's last symbol.
    In each frame the `beams` prefixes with the largest log(p_b + p_n) + score(ℓ) are kept. Symbols whose log-probability is
    below `least` extend no prefix. With enough beams and `least` −∞, the sums are exact.
    """
    if beams < 1:
        raise ValueError(f"beams is {several.shown(beams)}; give 1 or more")
    bonus = score if score is not None else lambda symbols, ended: 0.0
    kept: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, -math.inf)}
    for row in log_probs.double().tolist():
        grown: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [-math.inf, -math.inf])
        chosen = [(symbol, p) for symbol, p in enumerate(row) if p >= least and symbol != blank]
        for prefix, (ends_blank, ends_symbol) in kept.items():
            whole, last = _added(ends_blank, ends_symbol), prefix[-1] if prefix else None
            own = grown[prefix]
            own[0] = _added(own[0], whole + row[blank])
            if last is not None:
                own[1] = _added(own[1], ends_symbol + row[last])
            for symbol, p in chosen:
                before = ends_blank if symbol == last else whole
                if before > -math.inf:  # a repeat needs a blank before it
                    longer = grown[(*prefix, symbol)]
                    longer[1] = _added(longer[1], before + p)
        ranked = sorted(grown.items(), key=lambda item: -(_added(*item[1]) + bonus(item[0], False)))
        kept = {prefix: (a, b) for prefix, (a, b) in ranked[:beams]}
    found = [
        PrefixHypothesis(prefix, _added(*pair), _added(*pair) + bonus(prefix, True)) for prefix, pair in kept.items()
    ]
    return sorted(found, key=lambda one: -one.score)


def _added(a: float, b: float) -> float:
    """log(eᵃ + eᵇ)."""
    if a < b:
        a, b = b, a
    return a if b == -math.inf else a + math.log1p(math.exp(b - a))


class WordFusion:
    """A language model of words in prefix beam search (Hannun et al. 2014): α log p(words) + β |words|, of the complete
    words: all but the last of a prefix, all of a whole text.

    decode:  the text of symbols.
    log_p:   log p of the words of a text, in nats; whether it has ended.
    """

    def __init__(
        self,
        decode: Callable[[tuple[int, ...]], str],
        log_p: Callable[[tuple[str, ...], bool], float],
        weight: float = 0.5,
        bonus: float = 1.0,
    ) -> None:
        self._decode, self._log_p, self.weight, self.bonus = decode, log_p, weight, bonus
        self._known: dict[tuple[tuple[str, ...], bool], float] = {}

    def __call__(self, symbols: tuple[int, ...], ended: bool) -> float:
        text = self._decode(symbols)
        words = text.split()
        complete = tuple(words if ended or text[-1:].isspace() else words[:-1])
        key = (complete, ended)
        if key not in self._known:
            self._known[key] = self.weight * self._log_p(complete, ended) + self.bonus * len(complete)
        return self._known[key]
