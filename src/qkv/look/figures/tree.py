"""A tree of paths, such as the hypotheses of a beam search, as an SVG file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from markupsafe import Markup

from ..standalone_svg import WIDTH, save
from ..svg import join, number, tag, text_width

Words = tuple[str, ...]
_LEAF, _TOP = 34.0, 34.0


def tree(file: Path | str, title: str, paths: Mapping[Words, tuple[str, bool]]) -> None:
    """Draw paths from left to right: the last word of each path with its note below, joined to the path before that word.

    paths: (note, kept) by words; words that are not kept are faint. The beginnings of a path must be there too.
    """
    save(file, chart(title, paths))


def chart(title: str, paths: Mapping[Words, tuple[str, bool]]) -> Markup:
    """Return the tree as SVG markup."""
    if not paths:
        raise ValueError("there are no paths to draw")
    if lost := [path for path in paths if path[:-1] and path[:-1] not in paths]:
        raise ValueError(f"the path {lost[0]} is drawn from {lost[0][:-1]}, which is missing")
    rows: dict[Words, float] = {}
    _place((), paths, rows)
    depth = max(map(len, paths))
    step = (WIDTH - 70) / depth  # the last words need room
    parts = []
    for path, (note, kept) in paths.items():
        x, y = _point(path, rows, step)
        start, height = _point(path[:-1], rows, step)
        if len(path) > 1:
            start += 5 + max(text_width(path[-2], 12), text_width(paths[path[:-1]][0], 12))
        half = (start + x - 5) / 2
        places = ((start, height), (half, height), (half, y), (x - 5, y))
        d = "M{}C{} {} {}".format(*(f"{number(across)} {number(down)}" for across, down in places))
        faint = "" if kept else " faint"
        parts.append(tag("path", d=d, class_=f"branch{faint}"))
        parts.append(tag("text", path[-1], x=x, y=y - 1, class_=f"ink{faint}"))
        parts.append(tag("text", note, x=x, y=y + 13, class_=f"tick{faint}"))
    leaves = sum(not _children(path, paths) for path in paths)
    return tag(
        "svg",
        tag("title", title),
        tag("text", title, x=0, y=13, class_="chart-title"),
        tag("circle", cx=4, cy=_point((), rows, step)[1], r=4, class_="dot s0"),
        join(*parts),
        class_="chart",
        viewBox=f"0 0 {WIDTH} {round(_TOP + leaves * _LEAF)}",
        role="img",
        aria_label=title,
    )


def _children(path: Words, paths: Mapping[Words, tuple[str, bool]]) -> list[Words]:
    return [child for child in paths if child[:-1] == path]


def _place(path: Words, paths: Mapping[Words, tuple[str, bool]], rows: dict[Words, float]) -> None:
    """Give each path its row: leaves one after another, others the middle of their children."""
    children = _children(path, paths)
    for child in children:
        _place(child, paths, rows)
    used = [rows[other] for other in rows if not _children(other, paths)]
    rows[path] = sum(rows[child] for child in children) / len(children) if children else max(used, default=-1.0) + 1


def _point(path: Words, rows: Mapping[Words, float], step: float) -> tuple[float, float]:
    return (4 if not path else (len(path) - 1) * step + 40), _TOP + 8 + rows[path] * _LEAF
