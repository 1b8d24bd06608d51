"""Published numbers beside ours: rows for a terminal, the comparison of one result, and the table of docs/results.md."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.metrics.correlation import correlations
from .entry import KeptResult, PublishedFigure, PublishedResult, kept, names

_MET = {True: "met", False: "not met", None: ""}


def entries() -> list[tuple[PublishedResult, KeptResult | None]]:
    """All entries with what was measured of them."""
    return [(PublishedResult.load(name), kept(name)) for name in names()]


def verdict(figure: PublishedFigure, ours: float | None) -> str:
    """Whether a goal is met, with the goal: `not met (at least 41.02)`; empty without a goal."""
    aim = figure.aim
    if aim is None:
        return ""
    goal = f"{figure.goal}{' of' if figure.goal.startswith('within') else ''} {figure.shown(aim)}"
    return goal if ours is None else f"{_MET[figure.met(ours)]} ({goal})"


def rows(entry: PublishedResult, result: KeptResult | None) -> list[list[str]]:
    """For each figure: its name, the published number, ours, and whether the goal is met."""
    lines = []
    for figure in entry.figures:
        ours = None if result is None else result.figures.get(figure.name)
        lines.append(
            [
                figure.name,
                figure.shown(figure.published),
                "not measured" if ours is None else figure.shown(ours),
                verdict(figure, ours),
            ]
        )
    return lines


def order(entry: PublishedResult, result: KeptResult) -> str:
    """Return a sentence comparing the published order of figures with ours, or "" if the entry is not ranked."""
    pairs = [(figure.published, result.figures.get(figure.name)) for figure in entry.figures]
    numbers = [(float(theirs), ours) for theirs, ours in pairs if not isinstance(theirs, str) and ours is not None]
    if not entry.ranked or len(numbers) < 3:
        return ""
    met = [figure.met(result.figures[figure.name]) for figure in entry.figures if figure.name in result.figures]
    rho = correlations(*zip(*numbers, strict=True))["spearman"].value
    return (
        f"{met.count(True)} of {len(numbers)} goals are met; Spearman's rank correlation of the published order and ours "
        f"is {rho:.2f}."
    )


def comparison(entry: PublishedResult, result: KeptResult, earlier: KeptResult | None) -> str:
    """The comparison of one result as Markdown."""
    head = ["", "published", "ours", "goal"] + (["ours before"] if earlier is not None else [])
    lines = rows(entry, result)
    if earlier is not None:
        for line, old in zip(lines, rows(entry, earlier), strict=True):
            line.append(f"{old[2]} ({earlier.date})")
    parts = [
        f"# {entry.title}",
        f"Published by [{entry.source}]({entry.link}).",
        markdown(head, lines),
        *([order(entry, result)] if entry.ranked else []),
        f"Measured {result.date} by `{result.origin}` in {result.minutes} minutes on {result.machine}; {result.versions}.",
        "What differs from the publication:",
        "\n".join(f"- {sentence}" for sentence in entry.differences),
    ]
    return "\n\n".join(parts) + "\n"


def page() -> str:
    """The table of docs/results.md, with the differences below it."""
    lines, notes = [], []
    for entry, result in entries():
        for i, row in enumerate(rows(entry, result)):
            first = f"`{entry.name}`: {entry.title} ([{entry.source}]({entry.link}))" if not i else ""
            lines.append([first, *row, "" if result is None or i else _when(result)])
        notes.append(_note(entry, result))
    head = ["result", "figure", "published", "ours", "goal", "measured"]
    return markdown(head, lines) + "\n" + "\n".join(notes)


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rules = ["---"] * len(head)
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in (head, rules, *lines)
    )


def _when(result: KeptResult) -> str:
    minutes = "" if result.minutes is None else f", {result.minutes:g} min"
    return f"{result.date}{minutes}"


def _note(entry: PublishedResult, result: KeptResult | None) -> str:
    """What differs, and where ours comes from."""
    sentences = " ".join(entry.differences)
    if result is None:
        return f"- **`{entry.name}`** {sentences} It has not been run; it takes about {entry.minutes:g} minutes."
    remarks = "".join(f" {remark}" for remark in result.remarks)
    where = f"{result.machine}; {result.versions}"
    origin = result.origin if result.origin.startswith("[") else f"`{result.origin}`"
    remarks += f" {order(entry, result)}" if entry.ranked else ""
    return f"- **`{entry.name}`** {sentences}{remarks} Measured {result.date}: {origin} ({where})."
