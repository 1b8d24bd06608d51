"""Functions ("writers") that format dates, numbers and phrases in one locale, as Babel does, but many times as fast.

Babel reads the locale's pattern for every text; a writer reads it once. A writer calls Babel for anything it can't format,
such as fields that depend on the time zone, or numbers that Babel would round. The tests compare writers with Babel on a
sample of dates, times and numbers in every locale of the recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar

from babel import dates, lists, numbers, units
from babel.core import Locale

Moment = date | time | datetime
Key = TypeVar("Key", bound=Hashable)

_DIGITS = "123456789"  # the digits of a sample number


class Memo(dict[Key, Any], Generic[Key]):
    """A dictionary that computes a missing value as `compute(key)` and stores it."""

    def __init__(self, compute: Callable[[Key], Any]) -> None:
        self._compute = compute

    def __missing__(self, key: Key) -> Any:
        self[key] = value = self._compute(key)
        return value


# -- dates and times ------------------------------------------------------------------------------------------------

# For each field of a pattern: a function that returns the value on which its text depends, and a function that returns a
# date or time with a given value (2024 began on a Monday).
_DEPENDS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Moment]]] = {
    "y": (attrgetter("year"), lambda year: date(year, 1, 1)),
    **dict.fromkeys("MLQq", (attrgetter("month"), lambda month: date(2024, month, 1))),
    "d": (attrgetter("day"), lambda day: date(2024, 1, day)),
    **dict.fromkeys("Eec", (date.weekday, lambda weekday: date(2024, 1, 1 + weekday))),
    **dict.fromkeys("ahHKk", (attrgetter("hour"), lambda hour: time(hour))),
    "m": (attrgetter("minute"), lambda minute: time(0, minute)),
    "s": (attrgetter("second"), lambda second: time(0, 0, second)),
}


def moment_writer(pattern: dates.DateTimePattern | str, locale: Locale) -> Callable[[Any], str]:
    """Return a function that formats dates and times by a CLDR pattern, such as `d. MMMM y`.

    Its texts equal `babel.dates.parse_pattern(pattern).apply(moment, locale)`.
    """
    parsed = dates.parse_pattern(pattern)
    template, fields = "", []
    for kind, found in dates.tokenize_pattern(parsed.pattern):
        if kind == "chars":
            template += str(found).replace("%", "%%")
        else:
            template += "%s"
            fields.append(_field(found[0], found[0] * int(found[1]), locale))

    def write(moment: Moment) -> str:
        return template % tuple([text(value(moment)) for value, text in fields])

    return write


def _field(char: str, name: str, locale: Locale) -> tuple[Callable[[Any], Any], Callable[[Any], str]]:
    """Return two functions: one gives the value of a date or time on which a field's text depends, the other its text."""
    if char in _DEPENDS:
        value, moment = _DEPENDS[char]
        return value, Memo(lambda key: dates.DateTimeFormat(moment(key), locale)[name]).__getitem__
    return lambda moment: moment, lambda moment: dates.DateTimeFormat(moment, locale)[name]


def interval_writer(skeleton: str, locale: Locale) -> Callable[[tuple[date, date]], str]:
    """Return a function that formats intervals (start, end).

    Its texts equal `babel.dates.format_interval(start, end, skeleton, fuzzy=False, locale=locale)`.
    """
    formats = locale.interval_formats.get(skeleton) or {}
    pieces = {
        field: [moment_writer(pattern, locale) for pattern in formats[field]]
        for field in ("y", "M", "d")
        if field in formats
    }

    def write(item: tuple[date, date]) -> str:
        start, end = item
        field = "y" if start.year != end.year else "M" if start.month != end.month else "d"
        if field not in pieces or start == end:
            return dates.format_interval(start, end, skeleton, fuzzy=False, locale=locale)
        return "".join([write(moment) for write, moment in zip(pieces[field], item)])  # noqa: B905

    return write


# -- numbers --------------------------------------------------------------------------------------------------------


def number_writer(babel: Callable[[Decimal], str]) -> Callable[[Decimal], str]:
    """Return a function that formats positive numbers as `babel` does. `babel` must use one pattern, without trailing zeros.

    Numbers of equal length have their digits in the same places. A sample with distinct digits, such as 12,345.67, shows
    the places. If `babel` rounds the sample, the function calls `babel` for all numbers of this length.
    """

    def pattern(shape: tuple[int, int]) -> str | None:
        length, point = shape
        digits = _DIGITS[: length - (point >= 0)]
        if len(digits) < length - (point >= 0):
            return None
        text = babel(Decimal(digits if point < 0 else f"{digits[:point]}.{digits[point:]}"))
        kept = "".join(character for character in text if character in digits)
        template = text.replace("%", "%%").translate({ord(digit): "%s" for digit in digits})
        return template if kept == digits else None

    patterns: Memo[tuple[int, int]] = Memo(pattern)

    def write(number: Decimal) -> str:
        text = str(number)
        if "E" in text or "-" in text:
            return babel(number)
        if "." in text:
            text = text.rstrip("0").rstrip(".")
        template = patterns[len(text), text.find(".")]
        return babel(number) if template is None else template % tuple(text.replace(".", ""))

    return write


@lru_cache(maxsize=64)
def plural_rule(locale: Locale) -> Callable[[Any], str]:
    """Return a function that maps numbers without trailing zeros to their plural category in a locale."""
    return lru_cache(maxsize=8192)(locale.plural_form)


def counted_writer(
    babel: Callable[[tuple[Key, Any]], str],
    number: Callable[[Key, Any], str],
    plural: Callable[[Any], Hashable],
) -> Callable[[tuple[Key, Any]], str]:
    """Return a function that formats amounts (what, n) as `babel` does. `babel` must put the same words around
    `number(what, n)` for all n of a plural category.

    The first n of a category shows the words. If they can't be separated from the number, the function always calls
    `babel`.
    """
    words: dict[tuple[Key, Hashable], tuple[str, ...] | None] = {}

    def learn(item: tuple[Key, Any]) -> tuple[str, ...] | None:
        text, digits = babel(item), number(*item)
        before, found, after = text.partition(digits)
        if any(character.isdecimal() for character in before + after):
            return None
        return (before, after) if found else (text,)

    def write(item: tuple[Key, Any]) -> str:
        what, n = item
        key = what, plural(n)
        if key not in words:
            words[key] = learn(item)
        around = words[key]
        return babel(item) if around is None else number(what, n).join(around)

    return write


def compact_writer(length: Literal["short", "long"], locale: Locale) -> Callable[[Decimal], str]:
    """Return a function that formats positive numbers in short form, such as 1.2K.

    Its texts equal `babel.numbers.format_compact_decimal(number, format_type=length, locale=locale, fraction_digits=1)`.
    """
    formats, plural = locale.compact_decimal_formats[length], plural_rule(locale)
    magnitudes = sorted(map(int, formats["other"]), reverse=True)
    reached = Memo[int](lambda power: next((m for m in magnitudes if m <= 10**power), 0))

    def unit(magnitude: int) -> int:
        """Return the unit of numbers of a magnitude, such as 1,000 for thousands; 0 if they are written in full."""
        pattern = numbers.parse_pattern(formats["other"][str(magnitude)]).pattern
        return 0 if pattern == "0" else magnitude // 10 ** (pattern.count("0") - 1)

    def writer(key: tuple[int, str, bool]) -> Callable[[Decimal], str]:
        magnitude, form, is_one = key
        form = "1" if is_one and "1" in formats else form if form in formats else "other"
        form = form if str(magnitude) in formats[form] else "other"
        pattern = numbers.parse_pattern(formats[form][str(magnitude)])
        return number_writer(lambda number: pattern.apply(number, locale, decimal_quantization=False))

    counts, writers = Memo(unit), Memo(writer)

    def write(number: Decimal) -> str:
        magnitude = reached[number.adjusted()]  # they are powers of ten
        if not magnitude or not counts[magnitude]:
            return numbers.format_compact_decimal(number, format_type=length, locale=locale, fraction_digits=1)
        counted = number / counts[magnitude]
        return writers[magnitude, plural(counted), counted == 1](round(counted, 1))

    return write


def currency_writer(style: Literal["name", "standard"], locale: Locale) -> Callable[[tuple[str, Decimal]], str]:
    """Return a function that formats amounts of money (currency code, n).

    Its texts equal `babel.numbers.format_currency(n, code, locale=locale, format_type=style)`.
    """

    def babel(item: tuple[str, Decimal]) -> str:
        return numbers.format_currency(item[1], item[0], locale=locale, format_type=style)

    if style == "standard":
        by_code = Memo[str](lambda code: number_writer(lambda n: babel((code, n))))
        return lambda item: by_code[item[0]](item[1])
    plain = locale.decimal_formats[None]
    digits = Memo[str](lambda code: number_writer(lambda n: numbers.format_currency(n, code, plain, locale)))
    return counted_writer(babel, lambda code, n: digits[code](n), plural_rule(locale))


def unit_writer(length: Literal["long", "short"], locale: Locale) -> Callable[[tuple[str, Decimal]], str]:
    """Return a function that formats measures (unit, n). Its texts equal `format_unit(n, unit, length, locale=locale)`."""
    digits = number_writer(lambda n: numbers.format_decimal(n, locale=locale))
    return counted_writer(
        lambda item: units.format_unit(item[1], item[0], length, locale=locale),
        lambda unit, n: digits(n),
        plural_rule(locale),
    )


def list_writer(style: Literal["standard", "or"], locale: Locale) -> Callable[[Sequence[str]], str]:
    """Return a function that formats lists of words. Its texts equal `babel.lists.format_list(words, style, locale)`."""

    def template(length: int) -> str:
        return lists.format_list([f"\0{i}\0" for i in range(length)], style, locale)

    templates = Memo[int](template)

    def write(words: Sequence[str]) -> str:
        text: str = templates[len(words)]
        for i, word in enumerate(words):
            text = text.replace(f"\0{i}\0", word)
        return text

    return write
