"""Drawing of piano rolls for a report: a piece as the model continues it, and the original."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from ....look.pictures import draws
from ....look.svg import tag

_HIGH, _WIDE, _LONGEST = 4, 14, 520  # pixels of a semitone, of a frame, and of a picture at most
_GIVEN, _MADE, _GRID = "#9aa0a6", "#2563eb", "#e5e7eb"

Runs = Sequence[tuple[int, int, int]]


@draws("roll")
def roll(picture: Mapping[str, Any]) -> Markup:
    """Draw `made` and `true`, (note, first frame, frame after the last) of each note; the first `prompt` frames are the
    prompt. `midi`, a file in base64, gets a link."""
    output, true = picture["made"], picture["true"]
    notes = [note for note, _, _ in (*output, *true)] or [60]
    frames = max([stop for _, _, stop in (*output, *true)], default=1)
    place = (min(notes), max(notes), frames, int(picture["prompt"]))
    parts = [_roll("the model continues", output, place), _roll("the piece itself", true, place)]
    if picture.get("midi"):
        link = f"data:audio/midi;base64,{picture['midi']}"
        parts.append(tag("p", tag("a", "what the model made, as a MIDI file", href=link, download="continued.mid")))
    return tag("div", *parts)


def _roll(title: str, runs: Runs, place: tuple[int, int, int, int]) -> Markup:
    low, high, frames, prompt = place
    wide = min(_WIDE, _LONGEST / frames)
    height, width = (high - low + 3) * _HIGH, frames * wide
    lines = [
        tag("rect", x=0, y=(high - c + 1) * _HIGH, width=width, height=1, fill=_GRID)
        for c in range(low, high + 1)
        if c % 12 == 0
    ]
    bars = [
        bar
        for note, start, stop in runs
        for begin, end, color in ((start, min(stop, prompt), _GIVEN), (max(start, prompt), stop, _MADE))
        if begin < end
        for bar in [_bar(begin * wide, (high - note + 1) * _HIGH, (end - begin) * wide, color)]
    ]
    edge = tag("line", x1=prompt * wide, x2=prompt * wide, y1=0, y2=height, stroke="#444", stroke_dasharray="3 3")
    drawing = tag(
        "svg", *lines, *bars, edge, viewBox=f"0 0 {width:.1f} {height}", width=width, height=height, role="img"
    )
    return tag("figure", drawing, tag("figcaption", title))


def _bar(x: float, y: float, width: float, color: str) -> Markup:
    return tag("rect", x=x, y=y, width=max(width - 1, 1.0), height=_HIGH - 1, rx=1, fill=color)
