"""The phrases of `localise`: dates, numbers, units and names formatted by CLDR, drawn at random or listed as anchors.

An *item* is a language-independent value (a date, an amount of a currency); a `Form` is one way to write items of a
domain, in any locale. The *anchors* of a form are a few items whose texts together contain every word of the form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from random import Random
from typing import Any, Literal, get_args

from babel import dates, numbers
from babel.core import Locale

from .cldr_locales import CURRENCIES, LANGUAGES, TERRITORIES, UNITS, open_locale, shared_names
from .cldr_writers import (
    compact_writer,
    counted_writer,
    currency_writer,
    interval_writer,
    list_writer,
    moment_writer,
    number_writer,
    plural_rule,
    unit_writer,
)

Item = Any
Writer = Callable[[Item], str]
_Style = Literal["full", "long", "medium", "short"]
_Unit = Literal["year", "month", "week", "day", "hour", "minute", "second"]
_STYLES: tuple[_Style, ...] = get_args(_Style)
_FIRST, _LAST = date(1990, 1, 1).toordinal(), date(2029, 12, 31).toordinal()  # years are unambiguous in two digits


@dataclass(frozen=True)
class Form:
    """One way to write the items of a domain. `style` is the control word that is added if the English text is ambiguous.

    open: the writer in a locale.
    """

    domain: str
    style: str
    open: Callable[[Locale], Writer]
    draw: Callable[[Random], Item]
    anchors: tuple[Item, ...]
    has: Callable[[Item], bool] = lambda item: True
    _open: dict[str, Writer] = field(default_factory=dict, compare=False, repr=False)

    def writer(self, locale: Locale) -> Writer:
        """The writer in a locale, opened once."""
        name = str(locale)
        if name not in self._open:
            self._open[name] = self.open(locale)
        return self._open[name]

    def write(self, item: Item, locale: Locale) -> str:
        return self.writer(locale)(item)

    def supported(self, locale: Locale) -> bool:
        """Whether the locale has the data to write all anchors."""
        try:
            write = self.writer(locale)
            return bool(self.anchors) and all(write(item).strip() for item in self.anchors)
        except (KeyError, ValueError, AttributeError, TypeError, IndexError):
            return False


# -- dates and times ------------------------------------------------------------------------------------------------

_DAYS = (
    *(date(2024, month, day) for month in range(1, 13) for day in (1, 20)),
    *(date(2023, 1, d) for d in range(1, 8)),
)
_HOURS = tuple(time(hour, minute) for hour in range(24) for minute in (0, 37))


def _draw_date(random: Random) -> date:
    return date.fromordinal(random.randint(_FIRST, _LAST))


def _draw_time(random: Random) -> time:
    return time(random.randrange(24), random.randrange(60), random.randrange(60))


def _draw_moment(random: Random) -> datetime:
    return datetime.combine(_draw_date(random), _draw_time(random))


def date_forms(language: str, every_name: bool) -> list[Form]:
    def form(style: _Style) -> Form:
        return Form("date", style, lambda to: moment_writer(to.date_formats[style], to), _draw_date, _DAYS)

    return [form(style) for style in _STYLES]


def time_forms(language: str, every_name: bool) -> list[Form]:
    def form(style: _Style) -> Form:
        return Form("time", style, lambda to: moment_writer(to.time_formats[style], to), _draw_time, _HOURS)

    return [form(style) for style in _STYLES[2:]]


def datetime_forms(language: str, every_name: bool) -> list[Form]:
    anchors = (
        *(datetime.combine(day, time(9, 5)) for day in _DAYS),
        *(datetime.combine(_DAYS[0], hour) for hour in _HOURS),
    )

    def form(style: _Style) -> Form:
        clock: _Style = "medium" if style == "medium" else "short"  # the longer ones would name a time zone

        def open(to: Locale) -> Writer:
            pattern = str(to.datetime_formats[style]).replace("'", "")
            day, at = moment_writer(to.date_formats[style], to), moment_writer(to.time_formats[clock], to)
            return lambda moment: pattern.replace("{0}", at(moment)).replace("{1}", day(moment))

        return Form("datetime", style, open, _draw_moment, anchors)

    return [form(style) for style in _STYLES]


def calendar_forms(language: str, every_name: bool) -> list[Form]:
    """Months of a year, days of a month, weekdays with them, quarters."""
    styles = {"yMMMM": "long", "yMMM": "medium", "MMMMd": "long", "MMMd": "medium", "MMMEd": "medium", "yQQQQ": "full"}
    known = open_locale("en").datetime_skeletons.keys() & open_locale(language).datetime_skeletons.keys()

    def form(skeleton: str, style: str) -> Form:
        def open(to: Locale) -> Writer:
            return moment_writer(to.datetime_skeletons[skeleton], to)

        return Form("calendar", style, open, _draw_date, _DAYS)

    return [form(skeleton, style) for skeleton, style in styles.items() if skeleton in known]


def relative_forms(language: str, every_name: bool) -> list[Form]:
    seconds: dict[_Unit, int] = {
        "second": 1,
        "minute": 60,
        "hour": 3600,
        "day": 86400,
        "week": 604800,
        "month": 2592000,
        "year": 31536000,
    }
    names = list(seconds)

    def open(to: Locale) -> Writer:
        def babel(item: tuple[tuple[_Unit, bool], int]) -> str:
            (unit, past), n = item
            span = timedelta(seconds=(-n if past else n) * seconds[unit])
            return dates.format_timedelta(span, unit, threshold=1e12, add_direction=True, locale=to)

        write = counted_writer(babel, lambda what, n: str(n), plural_rule(to))
        return lambda item: write(((item[0], item[1] < 0), abs(item[1])))

    def draw(random: Random) -> tuple[_Unit, int]:
        return random.choice(names), random.choice((-1, 1)) * random.randint(1, 100)

    counts = _plural_samples(language, [Decimal(n) for n in range(1, 101)])
    anchors = tuple((unit, sign * int(n)) for unit in names for sign in (-1, 1) for n in counts)
    return [Form("relative", "long", open, draw, anchors)]


def interval_forms(language: str, every_name: bool) -> list[Form]:
    def open(to: Locale) -> Writer:
        return interval_writer("yMMMd", to)

    def draw(random: Random) -> tuple[date, date]:
        start = _draw_date(random)
        return start, start + timedelta(days=random.randint(1, 60))

    anchors = tuple((day, day + timedelta(days=days)) for day in _DAYS[:24] for days in (5, 40))
    return [Form("interval", "medium", open, draw, anchors)]


# -- numbers --------------------------------------------------------------------------------------------------------


def _draw_number(random: Random, digits: int, decimals: int) -> Decimal:
    """A positive number, uniform in its number of digits before and after the point."""
    places = random.randint(0, decimals)
    whole = random.randint(1, 10 ** random.randint(1, digits) - 1)
    part = random.randrange(10**places)
    # 7, not 7.0: they have different plurals but the same English text
    return Decimal(f"{whole}.{part:0{places}}".rstrip("0")) if part else Decimal(whole)


def _plural_samples(language: str, candidates: list[Decimal]) -> list[Decimal]:
    """The first two numbers for every pair of plural categories, English and the language's."""
    english, other = plural_rule(open_locale("en")), plural_rule(open_locale(language))
    groups: dict[tuple[str, str], list[Decimal]] = {}
    for n in candidates:
        groups.setdefault((english(n), other(n)), []).append(n)
    return [n for group in groups.values() for n in group[:2]]


@lru_cache(maxsize=64)
def _amounts(language: str) -> list[Decimal]:
    return _plural_samples(language, [Decimal(n) for n in range(1, 1000)] + [Decimal(n) / 10 for n in range(1, 100)])


def number_forms(language: str, every_name: bool) -> list[Form]:
    anchors = tuple(Decimal(text) for text in ("1", "12.5", "345.67", "8901", "23456.7", "987654.32"))

    def open(to: Locale) -> Writer:
        return number_writer(lambda n: numbers.format_decimal(n, locale=to))

    return [Form("number", "standard", open, lambda random: _draw_number(random, 6, 2), anchors)]


def percent_forms(language: str, every_name: bool) -> list[Form]:
    anchors = tuple(Decimal(text) for text in ("1", "2", "12.5", "345.6", "789", "100"))

    def open(to: Locale) -> Writer:
        return number_writer(lambda n: numbers.format_percent(n / 100, locale=to, decimal_quantization=False))

    return [Form("percent", "standard", open, lambda random: _draw_number(random, 3, 1), anchors)]


def compact_forms(language: str, every_name: bool) -> list[Form]:
    """Short forms of numbers, such as 1.2K and 34 million. Values are exact, so both languages write the same number."""

    def form(length: Literal["long", "short"]) -> Form:
        return Form("compact", length, lambda to: compact_writer(length, to), draw, anchors)

    def draw(random: Random) -> Decimal:
        return _draw_number(random, 3, 1).scaleb(random.choice((3, 6, 9)))

    leads = ("1", "1.5", "2", "3", "5", "10", "12", "12.5", "20", "25", "100", "101", "123.4", "200", "500")
    anchors = tuple(Decimal(lead).scaleb(power) for power in (3, 6, 9) for lead in leads)
    return [form("long"), form("short")]


def currency_forms(language: str, every_name: bool) -> list[Form]:
    codes = shared_names("currencies", language, None if every_name else CURRENCIES)

    def form(style: Literal["name", "standard"]) -> Form:
        english = currency_writer(style, open_locale("en"))
        distinct = _distinct(codes, lambda code: english((code, Decimal(2))))
        known = frozenset(distinct)
        counts = _amounts(language)
        anchors = tuple(
            (code, n) for code in distinct for n in counts if n == int(n) or numbers.get_currency_precision(code)
        )

        def draw(random: Random) -> tuple[str, Decimal]:
            code = random.choice(distinct)
            return code, _draw_number(random, 4, min(1, numbers.get_currency_precision(code)))

        return Form(
            "currency", style, lambda to: currency_writer(style, to), draw, anchors, lambda item: item[0] in known
        )

    return [form("name"), form("standard")]


def unit_forms(language: str, every_name: bool) -> list[Form]:
    def form(length: Literal["long", "short"]) -> Form:
        writes = {name: unit_writer(length, open_locale(name)) for name in ("en", language)}

        def english(unit: str) -> str | None:
            kind = unit.partition("-")[0]  # Babel writes the bare identifier where a locale lacks the pattern
            complete = all(f"{kind}-" not in writes[language]((unit, n)) for n in counts)
            return writes["en"]((unit, Decimal(2))) if complete else None

        counts = _amounts(language)
        codes = _distinct(UNITS, english)
        known = frozenset(codes)
        anchors = tuple((unit, n) for unit in codes for n in counts)

        def draw(random: Random) -> tuple[str, Decimal]:
            return random.choice(codes), _draw_number(random, 3, 1)

        return Form("unit", length, lambda to: unit_writer(length, to), draw, anchors, lambda item: item[0] in known)

    return [form("long"), form("short")]


def _distinct(codes: tuple[str, ...] | list[str], english: Callable[[str], str | None]) -> list[str]:
    """The codes that have an English text, without those whose text an earlier code has."""
    by_text: dict[str, str] = {}
    for code in codes:
        text = english(code)
        if text is not None:
            by_text.setdefault(text, code)
    return list(by_text.values())


# -- names ----------------------------------------------------------------------------------------------------------

_NAMES: dict[str, Callable[[Locale], Any]] = {
    "territories": lambda locale: locale.territories,
    "languages": lambda locale: locale.languages,
    "weekdays": lambda locale: locale.days["stand-alone"]["wide"],
    "months": lambda locale: locale.months["stand-alone"]["wide"],
}


def _names(locale: Locale) -> dict[str, dict[Any, str]]:
    return {role: dict(names(locale)) for role, names in _NAMES.items()}


def _name_tables(language: str, every_name: bool) -> dict[str, tuple[Any, ...]]:
    return {
        "territories": shared_names("territories", language, None if every_name else TERRITORIES),
        "languages": shared_names("languages", language, None if every_name else LANGUAGES),
        "weekdays": tuple(range(7)),
        "months": tuple(range(1, 13)),
    }


def name_forms(language: str, every_name: bool) -> list[Form]:
    """Single names. All are anchors, because names have to be memorized, so none is ever held out."""
    anchors = tuple((role, code) for role, codes in _name_tables(language, every_name).items() for code in codes)

    def open(to: Locale) -> Writer:
        tables = _names(to)
        return lambda item: tables[item[0]][item[1]]

    return [Form("name", "standard", open, lambda random: random.choice(anchors), anchors)]


def list_forms(language: str, every_name: bool) -> list[Form]:
    tables = {role: codes for role, codes in _name_tables(language, every_name).items() if len(codes) >= 3}
    roles, weights = list(tables), [4 if role in ("territories", "languages") else 1 for role in tables]
    # Every name in every place: some languages join a word for "and" to the name that follows.
    rings = {role: (*codes, *codes[:2]) for role, codes in tables.items()}
    anchors = tuple(
        (role, rings[role][at : at + n]) for role in tables for at in range(len(tables[role])) for n in (2, 3)
    )

    def draw(random: Random) -> tuple[str, tuple[Any, ...]]:
        role = random.choices(roles, weights)[0]
        return role, tuple(random.sample(tables[role], random.randint(2, 3)))

    def form(style: Literal["standard", "or"]) -> Form:
        def open(to: Locale) -> Writer:
            tables, write = _names(to), list_writer(style, to)
            return lambda item: write([tables[item[0]][code] for code in item[1]])

        return Form("list", style, open, draw, anchors)

    return [form("standard"), form("or")]


DOMAINS: dict[str, Callable[[str, bool], list[Form]]] = {
    "date": date_forms,
    "time": time_forms,
    "datetime": datetime_forms,
    "calendar": calendar_forms,
    "relative": relative_forms,
    "interval": interval_forms,
    "number": number_forms,
    "percent": percent_forms,
    "compact": compact_forms,
    "currency": currency_forms,
    "unit": unit_forms,
    "name": name_forms,
    "list": list_forms,
}
