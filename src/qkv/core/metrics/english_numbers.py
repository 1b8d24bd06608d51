"""English numbers in words as digits, by the rules of Whisper's authors: "twenty five dollars" is "$25"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

_ZEROS = {"o", "oh", "zero"}
_SMALL = """
one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
"""
_ROUND = "twenty thirty forty fifty sixty seventy eighty ninety"
_LARGE = "thousand million billion trillion quadrillion quintillion sextillion septillion octillion nonillion decillion"
_ONES = {word: number for number, word in enumerate(_SMALL.split(), 1)}
_TENS = {word: 10 * number for number, word in enumerate(_ROUND.split(), 2)}
_POWERS = {"hundred": 100} | {word: 1000**number for number, word in enumerate(_LARGE.split(), 1)}
Suffixed = dict[str, tuple[int, str]]
_ENDED_ONES: Suffixed = {
    **{"sixes" if word == "six" else f"{word}s": (number, "s") for word, number in _ONES.items()},
    "zeroth": (0, "th"),
    "first": (1, "st"),
    "second": (2, "nd"),
    "third": (3, "rd"),
    "fifth": (5, "th"),
    "twelfth": (12, "th"),
    **{
        word + ("h" if word.endswith("t") else "th"): (number, "th")
        for word, number in _ONES.items()
        if number > 3 and number not in (5, 12)
    },
}
_ENDED_TENS: Suffixed = {
    **{word.replace("y", "ies"): (number, "s") for word, number in _TENS.items()},
    **{word.replace("y", "ieth"): (number, "th") for word, number in _TENS.items()},
}
_ENDED_POWERS: Suffixed = {
    **{f"{word}s": (number, "s") for word, number in _POWERS.items()},
    **{f"{word}th": (number, "th") for word, number in _POWERS.items()},
}
_SIGNS = {"minus": "-", "negative": "-", "plus": "+", "positive": "+"}
_CURRENCIES = "pound £ pounds £ euro € euros € dollar $ dollars $ cent ¢ cents ¢"
_UNITS = dict(zip(_CURRENCIES.split()[::2], _CURRENCIES.split()[1::2], strict=True))
_BEFORE = {*_SIGNS.values(), *_UNITS.values()}
_NUMBER = re.compile(r"\d+(\.\d+)?$")
_JOINING = {"and", "double", "triple", "point"}
_WORDS: set[str] = {
    *_ZEROS,
    *_ONES,
    *_ENDED_ONES,
    *_TENS,
    *_ENDED_TENS,
    *_POWERS,
    *_ENDED_POWERS,
    *_SIGNS,
    *_UNITS,
    *("per", "percent"),
    *_JOINING,
}


def in_digits(text: str) -> str:
    """Write the numbers of a text in lower case as digits. Successive single digits are one number, "one oh one" is "101";
    "one" by itself stays a word."""
    words = _parted(text).split()
    return _joined(" ".join(_Reader(words).read()))


def _parted(text: str) -> str:
    """A text with "… and a half" as "… point five", and spaces between letters and digits, except for endings of numbers."""
    parts = re.split(r"\band\s+a\s+half\b", text)
    whole: list[str] = []
    for i, part in enumerate(parts):
        if not part.strip():
            continue
        whole.append(part)
        if i < len(parts) - 1:
            last = part.split()[-1]
            whole.append(
                "point five" if last in _ZEROS | _ONES.keys() | _TENS.keys() | _POWERS.keys() else "and a half"
            )
    text = re.sub(r"([a-z])([0-9])", r"\1 \2", " ".join(whole))
    text = re.sub(r"([0-9])([a-z])", r"\1 \2", text)
    return re.sub(r"([0-9])\s+(st|nd|rd|th|s)\b", r"\1\2", text)


def _joined(text: str) -> str:
    """A text with "$2 and ¢7" as "$2.07", amounts below one as cents, and the digit 1 as a word."""
    text = re.sub(
        r"([€£$])([0-9]+) (?:and )?¢([0-9]{1,2})\b", lambda found: f"{found[1]}{found[2]}.{int(found[3]):02d}", text
    )
    text = re.sub(r"[€£$]0.([0-9]{1,2})\b", lambda found: f"¢{int(found[1])}", text)
    return re.sub(r"\b1(s?)\b", r"one\1", text)


class _Reader:
    """Reads words from left to right. `value` is the number so far: an integer, or digits in a row as text."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.value: int | str | None = None
        self.sign: str | None = None
        self.skips = False

    def read(self) -> Iterator[str]:
        for i, word in enumerate(self.words):
            if self.skips:
                self.skips = False
                continue
            before = self.words[i - 1] if i else None
            after = self.words[i + 1] if i + 1 < len(self.words) else None
            yield from self._word(word, before, after)
        yield from self._flushed()

    def _word(self, word: str, before: str | None, after: str | None) -> Iterator[str]:
        if _NUMBER.match(word[1:] if word[0] in _BEFORE else word):
            yield from self._digits(word)
        elif word not in _WORDS:
            yield from self._flushed()
            yield self._signed(word)
        elif word in _ZEROS:
            self.value = f"{self.value or ''}0"
        elif word in _ONES:
            self.value = self._with_ones(_ONES[word], before)
        elif word in _TENS:
            self.value = self._with_tens(_TENS[word])
        elif word in _POWERS:
            yield from self._power(_POWERS[word])
        elif word in _ENDED_ONES:
            number, ending = _ENDED_ONES[word]
            yield self._ended(f"{self._with_ones(number, before)}{ending}")
        elif word in _ENDED_TENS:
            number, ending = _ENDED_TENS[word]
            yield self._ended(f"{self._with_tens(number)}{ending}")
        elif word in _ENDED_POWERS:
            yield from self._ended_power(*_ENDED_POWERS[word])
        else:
            yield from self._others(word, before, after)

    def _others(self, word: str, before: str | None, after: str | None) -> Iterator[str]:
        """Signs, units, percent, and words that join numbers."""
        numeric = after is not None and (after in _WORDS or bool(_NUMBER.match(after)))
        if word in _SIGNS:
            yield from self._flushed()
            if numeric:
                self.sign = _SIGNS[word]
            else:
                yield self._signed(word)
        elif word in _UNITS:
            if self.value is None:
                yield self._signed(word)
            else:
                self.sign = _UNITS[word]
                yield from self._flushed()
        elif word in ("per", "percent"):
            whole = word == "percent" or after == "cent"
            if self.value is not None and whole:
                self.skips = word == "per"
                yield self._ended(f"{self.value}%")
            else:
                yield from self._flushed()
                yield self._signed(word)
        elif not numeric:
            yield from self._flushed()
            yield self._signed(word)
        else:
            yield from self._joining(word, before, after)

    def _joining(self, word: str, before: str | None, after: str | None) -> Iterator[str]:
        single = after in _ZEROS or after in _ONES
        if word == "point":
            assert after is not None
            if single or after in _TENS or _NUMBER.match(after):
                self.value = f"{self.value or ''}."
        elif word != "and" and single:
            digit = _ONES.get(after or "", 0)
            self.value = f"{self.value or ''}{str(digit) * (2 if word == 'double' else 3)}"
            self.skips = True
        elif word != "and" or before not in _POWERS:
            yield from self._flushed()
            yield self._signed(word)

    def _digits(self, word: str) -> Iterator[str]:
        """Digits, with a sign before them or not."""
        sign = word[0] if word[0] in _BEFORE else None
        if isinstance(self.value, str) and self.value.endswith("."):
            self.value += word
            return
        yield from self._flushed()
        bare = word[1:] if sign else word
        number = Fraction(bare)
        self.sign = sign or self.sign
        self.value = number.numerator if number.denominator == 1 else bare

    def _with_ones(self, ones: int, before: str | None) -> int | str:
        """The number with 1 … 19 after it."""
        if self.value is None:
            return ones
        if isinstance(self.value, str) or before in _ONES:
            replaces = before in _TENS and ones < 10
            return f"{str(self.value)[:-1] if replaces else self.value}{ones}"
        return self._after(ones, 10 if ones < 10 else 100)

    def _with_tens(self, tens: int) -> int | str:
        """The number with 20 … 90 after it."""
        return tens if self.value is None else self._after(tens, 100)

    def _after(self, number: int, room: int) -> int | str:
        """The sum if the number so far ends in zeros, or else both in a row."""
        assert self.value is not None
        if isinstance(self.value, int) and self.value % room == 0:
            return self.value + number
        return f"{self.value}{number}"

    def _power(self, power: int) -> Iterator[str]:
        """A hundred, a thousand …"""
        if self.value is None:
            self.value = power
        elif isinstance(self.value, str) or self.value == 0:
            product = _product(self.value, power)
            if product is None:
                yield from self._flushed()
            self.value = power if product is None else product
        else:
            self.value = _multiplied(self.value, power)

    def _ended_power(self, power: int, ending: str) -> Iterator[str]:
        """Hundreds, a thousandth …"""
        if isinstance(self.value, str):
            product = _product(self.value, power)
            if product is None:
                yield from self._flushed()
            yield self._ended(f"{power if product is None else product}{ending}")
        else:
            yield self._ended(f"{power if self.value is None else _multiplied(self.value, power)}{ending}")

    def _ended(self, text: str) -> str:
        """What ends a number."""
        self.value = None
        return self._signed(text)

    def _flushed(self) -> Iterator[str]:
        """The number so far, if there is one."""
        if self.value is not None:
            yield self._ended(str(self.value))

    def _signed(self, text: str) -> str:
        sign, self.sign = self.sign or "", None
        return sign + text


def _multiplied(value: int, power: int) -> int:
    """The number whose last part, below a thousand, is multiplied."""
    return value // 1000 * 1000 + value % 1000 * power


def _product(value: int | str, power: int) -> int | None:
    """A decimal number times a power, if that is whole."""
    try:
        product = Fraction(value) * power
    except ValueError:
        return None
    return product.numerator if product.denominator == 1 else None
