"""Tables of reports."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from ...look.svg import tag


def table(corner: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], label: str) -> Markup:
    """Make a table with a header for each row and column, in a box that scrolls. `label` names it for screen readers."""
    head = tag("tr", *(tag("th", name, scope="col") for name in (corner, *columns)))
    body = [tag("tr", tag("th", name, scope="row"), *(tag("td", cell) for cell in cells)) for name, cells in rows]
    content = tag("table", tag("thead", head), tag("tbody", *body), class_="metrics")
    return tag("div", content, class_="scroll", role="region", aria_label=label, tabindex=0)
