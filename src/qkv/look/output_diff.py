"""Text of reports: durations, and a model's output with its differences from the truth marked."""

from __future__ import annotations

import difflib
import re

from markupsafe import Markup

from .svg import join, readable, tag


def duration(seconds: float) -> str:
    """Format a duration: 4.2 s, 42 s, 4 min 10 s, 2 h 5 min."""
    if seconds < 9.95:
        return f"{readable(seconds, 2)} s"
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60} s" if rounded % 60 else f"{rounded // 60} min"
    return f"{rounded // 3600} h {rounded % 3600 // 60} min"


def marked(output: str, target: str) -> Markup:
    """Return the output, escaped, with what differs from the truth in `<mark>`.

    Words are compared; characters if the truth has no spaces and the two are at least half alike (letters that the names of
    two classes share mean nothing).
    """
    words = re.search(r"\s", target.strip()) is not None
    mine, theirs = (re.findall(r"\s+|\S+" if words else r".", text, re.DOTALL) for text in (output, target))
    matcher = difflib.SequenceMatcher(a=mine, b=theirs, autojunk=False)
    if output and not words and matcher.ratio() < 0.5:
        return tag("mark", output)
    parts: list[object] = []
    for change, i, j, _, _ in matcher.get_opcodes():
        text = "".join(mine[i:j])
        if text:
            parts.append(text if change == "equal" else tag("mark", text))
    return join(*parts)
