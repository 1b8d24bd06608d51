"""Build SVG and HTML elements with escaped text, and format numbers, labels and text widths for drawings."""

from __future__ import annotations

import math
import unicodedata

from markupsafe import Markup, escape

_VISIBLE = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}


def tag(element: str, *children: object, **attributes: object) -> Markup:
    """Return one element: `tag("rect", x=1, stroke_width=2, class_="cell")`.

    Children and attributes are escaped unless they are `Markup`. An attribute that is None is left out; a trailing
    underscore is dropped and the others become hyphens (`class_`, `text_anchor`).
    """
    values = {name: value for name, value in attributes.items() if value is not None}
    words = "".join(
        f' {_attribute(name)}="{escape(number(value) if isinstance(value, float) else value)}"'
        for name, value in values.items()
    )
    if not children:
        return Markup(f"<{element}{words}/>")
    return Markup(f"<{element}{words}>{join(*children)}</{element}>")


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-") if name != "viewBox" else name


def join(*parts: object) -> Markup:
    """Concatenate parts, each escaped unless it is `Markup`."""
    return Markup("".join(map(escape, parts)))


def number(value: float, digits: int = 2) -> str:
    """Format a coordinate without trailing zeros."""
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"
    return "0" if text in ("", "-0") else text


def readable(value: float, significant: int = 3) -> str:
    """Format a value for a reader: 1,234 becomes 1.23k, 0.00042 becomes 4.2e-4."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    for bound, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= bound * (1 - 10.0**-significant / 2):  # so that 999.9 is 1k, not 1e3
            return f"{_plain(value / bound, significant)}{unit}"
    if size and size < 1e-3:
        mantissa, exponent = f"{value:.{significant - 1}e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(exponent)}"
    return _plain(value, significant)


def _plain(value: float, significant: int) -> str:
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    leading = 0 if whole or value == 0 else -math.floor(math.log10(abs(value))) - 1
    return number(value, max(0, significant - whole + leading))


def visible(token: str, longest: int = 16) -> str:
    """Return a token as a label: white space and control characters are made visible, long labels are cut."""
    shown = "".join(_VISIBLE.get(c) or (c if c.isprintable() else f"\\x{ord(c):02x}") for c in token) or "∅"
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def text_width(text: str, size: float) -> float:
    """Estimate the width of a text in a sans-serif font of the given size; East Asian characters are square."""
    cells = sum(
        0.0 if unicodedata.combining(c) else 1.0 if unicodedata.east_asian_width(c) in "WF" else 0.58 for c in text
    )
    return cells * size
