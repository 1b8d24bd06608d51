"""Forms of phrases: every domain has anchors that English and another language can write."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from random import Random

import pytest

from qkv.data.synthetic.cldr_locales import open_locale
from qkv.data.synthetic.cldr_phrases import DOMAINS, compact_forms, date_forms


@pytest.mark.parametrize("domain", DOMAINS)
def test_drawn_items_and_anchors_are_written_in_both_languages(domain: str) -> None:
    for form in DOMAINS[domain]("de", False):
        assert form.domain == domain and form.supported(open_locale("en")) and form.supported(open_locale("de"))
        item = form.draw(Random(1))
        assert form.has(item) and form.write(item, open_locale("de")).strip()


def test_dates_and_compact_numbers_match_cldr() -> None:
    full = date_forms("de", False)[0]
    assert full.write(date(2026, 5, 5), open_locale("de")) == "Dienstag, 5. Mai 2026"
    long = compact_forms("de", False)[0]
    assert long.write(Decimal(34_000_000), open_locale("en")) == "34 million"
    assert long.write(Decimal(34_000_000), open_locale("de")).split() == ["34", "Millionen"]
