"""Pages are made from templates that escape, and need everything they name."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from qkv.look.html import render


def test_values_are_escaped_unless_they_are_markup():
    rows = [("<b>", Markup("<i>1</i>"), '"&')]
    made = render("metrics.html", rows=rows)
    assert "&lt;b&gt;" in made and "<i>1</i>" in made and "&#34;&amp;" in made


def test_a_missing_value_is_an_error():
    with pytest.raises(UndefinedError):
        render("metrics.html")
