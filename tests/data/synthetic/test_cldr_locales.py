"""CLDR locales: independent of one another, and the codes that have names in two languages."""

from __future__ import annotations

import pytest

from qkv.data.synthetic.cldr_locales import CURRENCIES, LANGUAGES, TERRITORIES, open_locale, shared_names


def test_a_locale_has_its_own_data() -> None:
    a, b = open_locale("de_AT"), open_locale("de-CH")
    assert str(a) == "de_AT" and str(b) == "de_CH"
    assert vars(a)["_Locale__data"] is not vars(b)["_Locale__data"]
    assert open_locale("de_AT") is a


def test_an_unknown_locale_is_named_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="CLDR has no locale 'dee'; did you mean"):
        open_locale("dee")


@pytest.mark.parametrize(
    ("role", "codes"), [("territories", TERRITORIES), ("languages", LANGUAGES), ("currencies", CURRENCIES)]
)
def test_common_codes_have_names_in_german(role: str, codes: tuple[str, ...]) -> None:
    assert shared_names(role, "de", codes) == codes
    every = shared_names(role, "de", None)
    english = [getattr(open_locale("en"), role)[code] for code in every]
    assert len(every) > len(codes) and len(set(english)) == len(english)
