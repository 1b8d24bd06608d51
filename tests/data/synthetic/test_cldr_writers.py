"""Writers write what Babel writes, on a sample of the dates, times and numbers that the phrases have."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Literal, TypeVar

import pytest
from babel import dates, lists, numbers, units
from babel.core import Locale

from qkv.data.synthetic import cldr_phrases
from qkv.data.synthetic.cldr_locales import CURRENCIES, UNITS, open_locale
from qkv.data.synthetic.cldr_phrases import DOMAINS
from qkv.data.synthetic.cldr_writers import (
    compact_writer,
    counted_writer,
    currency_writer,
    interval_writer,
    list_writer,
    moment_writer,
    number_writer,
    unit_writer,
)

Item = TypeVar("Item")
LANGUAGES = ("en", "de", "fr", "ja", "es", "pl", "ar", "hi", "zh_Hant")
FIRST = date(1990, 1, 1)
DAYS = [FIRST + timedelta(days=n) for n in range(14610)]
STYLES: tuple[Literal["full", "long", "medium", "short"], ...] = ("full", "long", "medium", "short")
CLOCKS: tuple[Literal["medium", "short"], ...] = ("medium", "short")
LENGTHS: tuple[Literal["long", "short"], ...] = ("long", "short")
MONEY: tuple[Literal["name", "standard"], ...] = ("name", "standard")
KINDS: tuple[Literal["standard", "or"], ...] = ("standard", "or")
TENTHS = [Decimal(n) / 10 if n % 10 else Decimal(n // 10) for n in range(1, 10_000)]


def every(items: list[Item], share: int) -> list[Item]:
    """One in `share`, at random, the same in every process."""
    return Random(0).sample(items, len(items) // share)


Both = Iterator[tuple[str, str]]


def of_dates(locale: Locale, share: int) -> Both:
    for style in STYLES:
        write = moment_writer(locale.date_formats[style], locale)
        yield from ((write(day), dates.format_date(day, style, locale)) for day in every(DAYS, share))
    for skeleton in {"yMMMM", "yMMM", "MMMMd", "MMMd", "MMMEd", "yQQQQ"} & set(locale.datetime_skeletons):
        write = moment_writer(locale.datetime_skeletons[skeleton], locale)
        for day in every(DAYS, share):
            yield write(day), dates.format_skeleton(skeleton, day, fuzzy=False, locale=locale)
    interval = interval_writer("yMMMd", locale)
    for day in every(DAYS, share):
        for days in (0, 1, 20, 60):
            item = day, day + timedelta(days=days)
            yield interval(item), dates.format_interval(*item, "yMMMd", fuzzy=False, locale=locale)


def of_times(locale: Locale, share: int) -> Both:
    for clock in CLOCKS:
        write = moment_writer(locale.time_formats[clock], locale)
        for second in every(list(range(86400)), 4 * share):
            at = time(second // 3600, second // 60 % 60, second % 60)
            said = dates.format_time(at, clock, locale=locale)
            yield from ((write(at), said), (write(datetime.combine(FIRST, at)), said))


def of_numbers(locale: Locale, share: int) -> Both:
    plain = number_writer(lambda n: numbers.format_decimal(n, locale=locale))
    percent = number_writer(lambda n: numbers.format_percent(n / 100, locale=locale, decimal_quantization=False))
    for n in every(TENTHS, share):
        yield plain(n), numbers.format_decimal(n, locale=locale)
        yield percent(n), numbers.format_percent(n / 100, locale=locale, decimal_quantization=False)
    for whole in every(list(range(1_000_000)), 20 * share):
        n = Decimal(whole) + Decimal(whole % 97) / 100
        yield plain(n), numbers.format_decimal(n, locale=locale)


def of_amounts(locale: Locale, share: int) -> Both:
    """Compact numbers, measures and amounts of money."""
    for length in LENGTHS:
        if length in locale.compact_decimal_formats:
            compact = compact_writer(length, locale)
            for n in every([n.scaleb(power) for n in TENTHS for power in (0, 3, 6, 9)], share):
                said = numbers.format_compact_decimal(n, format_type=length, locale=locale, fraction_digits=1)
                yield compact(n), said
        measure = unit_writer(length, locale)
        for unit, n in every([(unit, n) for unit in UNITS for n in TENTHS[::3]], 3 * share):
            yield measure((unit, n)), units.format_unit(n, unit, length, locale=locale)
    for style in MONEY:
        money = currency_writer(style, locale)
        for code, n in every([(code, n) for code in CURRENCIES for n in TENTHS[::3]], 3 * share):
            yield money((code, n)), numbers.format_currency(n, code, locale=locale, format_type=style)


def of_lists(locale: Locale) -> Both:
    for kind in KINDS:
        write = list_writer(kind, locale)
        for words in (["a", "b"], ["{0}", "%s", "1"], ["\\", "b", "c", "a"]):
            yield write(words), lists.format_list(words, kind, locale)


def compare(locale: Locale, share: int) -> int:
    """The number of texts of a locale that were compared with Babel's."""
    compared = 0
    for domain in (of_dates, of_times, of_numbers, of_amounts):
        for ours, babel in domain(locale, share):
            assert ours == babel
            compared += 1
    assert all(ours == babel for ours, babel in of_lists(locale))
    return compared


@pytest.mark.parametrize("language", LANGUAGES)
def test_writers_write_what_babel_writes(language: str) -> None:
    assert compare(open_locale(language), share=500) > 500


@pytest.mark.slow
@pytest.mark.parametrize("language", [*LANGUAGES, "it", "pt_BR", "ru", "he", "fa", "th", "ko", "cs", "lv", "my", "kw"])
def test_writers_write_what_babel_writes_on_everything(language: str) -> None:
    assert compare(open_locale(language), share=4) > 40_000


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_relative_times_are_babels(language: str) -> None:
    (form,) = DOMAINS["relative"](language, False)
    spans = dict(dates.TIMEDELTA_UNITS)
    for unit in ("second", "hour", "month", "year"):
        for n in (1, 2, 3, 5, 11, 21, 100, -1, -2, -22):
            span = timedelta(seconds=n * spans[unit])
            said = dates.format_timedelta(span, unit, 1e12, add_direction=True, locale=open_locale(language))  # type: ignore[arg-type]
            assert form.write((unit, n), open_locale(language)) == said


def test_numbers_that_are_rounded_or_written_by_powers_are_left_to_babel() -> None:
    english = open_locale("en")
    write = number_writer(lambda n: numbers.format_decimal(n, locale=english))
    assert write(Decimal("1.23456")) == "1.235" and write(Decimal("1E+3")) == "1,000" and write(Decimal(-5)) == "-5"
    assert write(Decimal("12.50")) == "12.5" and write(Decimal(12_345_678_901)) == "12,345,678,901"
    assert write(Decimal("0.5")) == "0.5"


def test_digits_in_the_words_around_a_number_are_left_to_babel() -> None:
    calls: list[int] = []

    def babel(item: tuple[str, int]) -> str:
        calls.append(item[1])
        return f"{item[1]} per 100 km"

    write = counted_writer(babel, lambda what, n: str(n), lambda n: "other")
    assert [write(("fuel", n)) for n in (1, 7)] == ["1 per 100 km", "7 per 100 km"] and calls == [1, 1, 7]


def test_a_field_that_depends_on_the_second_is_left_to_babel() -> None:
    locale = open_locale("en")
    write = moment_writer("B h:mm:ss", locale)
    for at in (time(12, 0, 0), time(12, 0, 30)):
        assert write(at) == dates.parse_pattern("B h:mm:ss").apply(at, locale)


def test_drawn_numbers_are_uniform_in_their_digits() -> None:
    random = Random(0)
    drawn = [cldr_phrases._draw_number(random, 3, 1) for _ in range(3000)]
    assert {len(str(int(n))) for n in drawn} == {1, 2, 3}
    assert all(str(n).rstrip("0") == str(n) for n in drawn if n % 1) and any(n % 1 for n in drawn)
