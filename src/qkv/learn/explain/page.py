"""Render the steps of an explanation as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from ...look.html import render
from ...look.svg import join, tag
from .steps import LabeledTable, Step


def page(name: str, title: str, about: str, steps: Sequence[Step]) -> str:
    """The page: one section for each step."""
    sections = [{"title": f"{i}. {step.title}", "body": _step(step)} for i, step in enumerate(steps, start=1)]
    return render("explain.html", title=title, name=name, about=about, sections=sections)


def body(title: str, about: str, steps: Sequence[Step]) -> Markup:
    """The steps without a page around them, for notebooks."""
    parts = (join(tag("h4", step.title), _step(step)) for step in steps)
    return tag("div", tag("h3", title), tag("p", about), *parts)


def _step(step: Step) -> Markup:
    parts: list[Markup] = []
    if step.text:
        parts.append(tag("p", step.text))
    if step.equation:
        parts.append(tag("p", tag("code", step.equation), class_="equation"))
    if step.lines:
        parts.append(tag("div", tag("pre", "\n".join(step.lines)), class_="scroll", tabindex="0"))
    tables = tag("div", *map(_table, step.tables), class_="tables") if step.tables else ""
    return join(*parts, tables)


def _table(table: LabeledTable) -> Markup:
    note = tag("p", table.note, class_="cut") if table.note else ""
    head = tag("tr", tag("td", ""), *(tag("th", column, scope="col") for column in table.columns))
    rows = (
        tag("tr", tag("th", label, scope="row"), *(_cell(table, value, text) for value, text in zip(*row, strict=True)))
        for label, *row in zip(table.rows, table.values, table.texts(), strict=True)
    )
    drawn = tag(
        "table", tag("caption", table.caption), tag("thead", head), tag("tbody", *rows), class_="matrix numbers"
    )
    return tag("div", tag("div", drawn, class_="scroll", tabindex="0"), note)


def _cell(table: LabeledTable, value: object, text: str) -> Markup:
    if isinstance(value, str):
        return tag("td", text, class_="words")
    if table.shaded and isinstance(value, float):
        return tag("td", text, class_="weight", style=f"--share:{100 * min(max(value, 0.0), 1.0):.0f}%")
    return tag("td", text)
