"""N-gram language models of words with back-off, from files in the ARPA format (KenLM, SRILM, IRSTLM)."""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ....core.spec import brief

START, END, UNKNOWN = "<s>", "</s>", "<unk>"
_END = "\\end\\"
_UNSEEN = -7.0  # log₁₀ p of an unknown word if the file has no <unk>
_MOST = 50_000_000  # n-grams of a file


@dataclass(frozen=True)
class NGrams:
    """p(w | h) of words, with back-off (Katz 1987): that of the n-gram h w if it is listed, else b(h) p(w | h′), where h′ is
    h without its first word and b(h) is 1 if h is not listed.

    order: the most words of an n-gram.
    probabilities, backoffs: natural logarithms, by n-gram.
    """

    order: int
    probabilities: dict[tuple[str, ...], float]
    backoffs: dict[tuple[str, ...], float]

    @classmethod
    def read(cls, path: str | Path) -> NGrams:
        """Read an ARPA file, which may be compressed by gzip. Raises ValueError, with the line, if it is none."""
        path = Path(path)
        try:
            with (
                gzip.open(path, "rt", encoding="utf-8")
                if path.suffix.lower() == ".gz"
                else path.open(encoding="utf-8") as f
            ):
                return cls._of(((number, line.strip()) for number, line in enumerate(f, 1)), path)
        except (UnicodeDecodeError, gzip.BadGzipFile, EOFError):
            raise ValueError(f"{brief(path)} is no ARPA file: it is no text in UTF-8") from None
        except OSError as error:
            raise ValueError(f"{brief(path)} can't be read: {error.strerror}") from None

    @classmethod
    def _of(cls, lines: Iterator[tuple[int, str]], path: Path) -> NGrams:
        probabilities: dict[tuple[str, ...], float] = {}
        backoffs: dict[tuple[str, ...], float] = {}
        order, promised, ended = 0, 0, False
        for number, line in lines:
            if not line or line == "\\data\\":
                continue
            if line == _END:
                ended = True
                break
            if line.startswith("ngram "):
                promised += _whole(line.partition("=")[2], path, number)
            elif line.startswith("\\") and line.endswith("-grams:"):
                order = _whole(line[1:].partition("-")[0], path, number)
            elif not order:
                raise ValueError(f"{brief(path)}, line {number:,}, is no ARPA file: it begins with \\data\\")
            else:
                words, probability, backoff = _entry(line, order, path, number)
                probabilities[words] = probability
                if backoff:
                    backoffs[words] = backoff
        if not ended or len(probabilities) != promised:
            missing = "" if ended else f", and no {_END}"
            raise ValueError(
                f"{brief(path)} is truncated or damaged: it has {len(probabilities):,} of {promised:,} n-grams{missing}"
            )
        return cls(max(map(len, probabilities), default=1), probabilities, backoffs)

    def word(self, word: str, before: Sequence[str]) -> float:
        """log p of a word after the words before it, of which the last `order` − 1 count."""
        word = word if (word,) in self.probabilities else UNKNOWN
        kept = [
            one if (one,) in self.probabilities else UNKNOWN for one in before[max(len(before) - self.order + 1, 0) :]
        ]
        total = 0.0
        for begin in range(len(kept) + 1):
            history = tuple(kept[begin:])
            if (*history, word) in self.probabilities:
                return total + self.probabilities[(*history, word)]
            total += self.backoffs.get(history, 0.0)
        return total + _UNSEEN * math.log(10)

    def __call__(self, words: Sequence[str], ended: bool) -> float:
        """log p of the words that begin a text, and of its end if it has `ended`."""
        text = [START, *words, *([END] if ended else [])]
        return math.fsum(self.word(text[i], text[:i]) for i in range(1, len(text)))


def _entry(line: str, order: int, path: Path, number: int) -> tuple[tuple[str, ...], float, float]:
    """The words of a line, the logarithm of their probability, and of their back-off weight."""
    first, *words = line.split()
    try:
        backoff = float(words.pop()) if len(words) == order + 1 else 0.0
        probability = float(first)
    except ValueError:
        probability = backoff = math.nan
    if len(words) != order or not probability <= 0 or math.isnan(backoff):
        raise ValueError(
            f"{brief(path)}, line {number:,}, is {brief(line)}, not a logarithm with {order} words and perhaps a back-off"
        )
    return tuple(words), probability * math.log(10), backoff * math.log(10)


def _whole(text: str, path: Path, number: int) -> int:
    if not text.strip().isdecimal() or int(text) > _MOST:
        raise ValueError(
            f"{brief(path)}, line {number:,}, has {brief(text)} where a number of n-grams or words is needed"
        )
    return int(text)
