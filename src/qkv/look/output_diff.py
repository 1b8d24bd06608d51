"""Words of a report: durations, and an output with what its truth does not have marked."""

from __future__ import annotations

import difflib
import re

from markupsafe import Markup

from .svg import join, readable, tag


def duration(seconds: float) -> str:
    """A time as people say it: 4.2 s, 42 s, 4 min 10 s, 2 h 5 min."""
    if seconds < 9.95:
        return f"{readable(seconds, 2)} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def marked(output: str, target: str) -> Markup:
    """The output, escaped, with what the truth does not have in `<mark>`.

    Compared by words, or by characters where the truth is written without spaces and at least half of these are alike: what
    one class has in common with the name of another says nothing.
    """
    words = re.search(r"\s", target.strip()) is not None
    mine, theirs = (re.findall(r"\s+|\S+" if words else r".", text, re.DOTALL) for text in (output, target))
    compared = difflib.SequenceMatcher(a=mine, b=theirs, autojunk=False)
    if output and not words and compared.ratio() < 0.5:
        return tag("mark", output)
    parts: list[object] = []
    for what, i, j, _, _ in compared.get_opcodes():
        text = "".join(mine[i:j])
        if text:
            parts.append(text if what == "equal" else tag("mark", text))
    return join(*parts)
