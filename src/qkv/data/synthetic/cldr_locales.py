"""CLDR locales through Babel, and the names of territories, languages, currencies and units in them."""

from __future__ import annotations

import copy
from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any

from babel import localedata
from babel.core import Locale, UnknownLocaleError

from ...core.spec import brief, nearest


def _codes(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# ISO 3166 and 639 codes of widely known names; `Localise(names="all")` uses the full tables.
TERRITORIES = _codes(
    "US CA MX BR AR CL CO PE CU GB IE FR ES PT DE AT CH IT GR TR NL BE DK SE NO FI IS PL CZ HU RO BG UA RU "
    "CN JP KR IN PK ID TH VN PH MY SG AU NZ EG MA KE NG ZA ET IL SA IR IQ"
)
LANGUAGES = _codes("ar bg cs da de el en es fi fr he hi hu id is it ja ko la nl no pl pt ro ru sv th tr uk vi zh")
CURRENCIES = _codes("USD EUR GBP JPY CHF CNY INR BRL CAD AUD MXN KRW SEK NOK DKK PLN CZK TRY RUB ZAR")
UNITS = _codes(
    "length-millimeter length-centimeter length-meter length-kilometer length-inch length-foot length-yard length-mile "
    "mass-gram mass-kilogram mass-ounce mass-pound volume-milliliter volume-liter volume-gallon volume-cubic-meter "
    "area-square-meter area-square-kilometer area-hectare temperature-celsius temperature-fahrenheit "
    "speed-kilometer-per-hour speed-mile-per-hour digital-megabyte digital-gigabyte power-watt power-kilowatt "
    "duration-second duration-minute duration-hour duration-day duration-week duration-month duration-year"
)


@lru_cache(maxsize=64)
def open_locale(name: str) -> Locale:
    """A locale with its own data. Raises ValueError, with the nearest names, when CLDR has no such locale.

    Babel resolves CLDR's aliases in place, in dictionaries that all locales share, so the output of one locale
    depends on which was used before it (python-babel/babel#1234). A deep copy taken before first use keeps them apart.
    """
    try:
        known = Locale.parse(name.replace("-", "_"))
    except (ValueError, UnknownLocaleError):
        names = sorted(localedata.locale_identifiers())
        raise ValueError(f"CLDR has no locale {brief(name)}; {nearest(name.replace('-', '_'), names)}") from None
    locale = Locale(known.language, known.territory, known.script, known.variant)
    own: MutableMapping[Any, Any] = copy.deepcopy(localedata.load(str(locale)))
    vars(locale)["_Locale__data"] = localedata.LocaleDataDict(own)
    return locale


def shared_names(role: str, language: str, codes: tuple[str, ...] | None) -> tuple[str, ...]:
    """The codes that have a name in both English and `language`, one code per English name.

    `role` is "territories", "languages" or "currencies". Without `codes`, these are all codes that CLDR names, except
    English names with more than letters (years, "and", brackets) and names of both a territory and a language.
    """
    english, other = getattr(open_locale("en"), role), getattr(open_locale(language), role)
    taken = set(open_locale("en").territories.values()) if role == "languages" else set()
    by_name: dict[str, str] = {}
    for code in codes or sorted(english):
        name = english.get(code)
        plain = codes is not None or (code.isalpha() and name and name.replace(" ", "").isalpha() and name not in taken)
        if name and plain and other.get(code):
            by_name.setdefault(name, code)
    return tuple(by_name.values())
