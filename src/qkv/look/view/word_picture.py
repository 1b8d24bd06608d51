"""Draw the attention of one word as a still picture: lines to what it attends to, in a color for each head, and below them a
row for each head, as figure 3 of Vaswani et al. (2017)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ..svg import text_width
from .attention import AttentionGroup
from .axis import Axis
from .picture import FONT, GROUND, HEAT, Drawing, cells, mixed

# Of the page's lines (look/page/style.css).
COLORS = (
    (0x3B, 0x2F, 0xB5),
    (0xD2, 0x61, 0x1C),
    (0x0F, 0x8A, 0x7E),
    (0xB3, 0x24, 0x6E),
    (0x7A, 0x6A, 0x00),
    (0x4A, 0x7F, 0xBD),
    (0x7C, 0x4A, 0x2D),
    (0x6D, 0x6D, 0x78),
)
STRENGTH = "a line or shade is as strong as its weight is near the largest of its row"
_FAN = 110  # pixels from the word to the others
_LEAST = 0.05  # share of a row's largest weight from which on a line is drawn
_STEPS = 24  # points of a curve


def draw(
    group: AttentionGroup,
    axes: Mapping[str, Axis],
    focus: Mapping[str, list[int]],
    index: int | None = None,
    head: int | None = None,
    text: str = "",
) -> Drawing:
    """Draw what the tokens of a word attend to, or if it is among the keys alone, what attends to them: for each token, the
    mean of the heads of a layer and each head. `focus` has the places of the word on each axis. The first 8 heads have lines
    in their color."""
    layer = group.layers[-1] if index is None else group.layer(index)
    asks = group.query in focus
    word, others = (axes[group.query], axes[group.key]) if asks else (axes[group.key], axes[group.query])
    names, columns = (word.row_labels, others.labels) if asks else (word.labels, others.row_labels)
    places = focus[word.name]
    weights = layer.weights if asks else layer.weights.transpose(1, 2)
    heads = [i for i, number in enumerate(layer.heads) if head in (None, number)]
    rows: list[tuple[str, int | None, int, Tensor]] = []  # label, color, place, weights
    for at, place in enumerate(places):
        of_place = weights[heads, place]
        label = names[place] if len(places) == 1 else f"{names[place]} ({word.shown[place]})"
        if len(heads) > 1:
            rows.append((f"{label}   mean of heads", None, at, of_place.mean(0)))
        for color, (i, row) in enumerate(zip(heads, of_place, strict=True)):
            rows.append((f"{label}   head {layer.heads[i]}", color if color < len(COLORS) else None, at, row))
    said = " ".join(dict.fromkeys(names[place] for place in places))
    title = (
        f"{group.name}, layer {layer.index}: what {said} attends to"
        if asks
        else (f"{group.name}, layer {layer.index}: what attends to {said}")
    )
    notes = [title, STRENGTH]
    if len(heads) > len(COLORS):
        notes.append(f"lines of the first {len(COLORS)} of {len(heads)} heads; choose others with --heads")
    anchors = [word.shown[place] for place in places] if word is others else None
    return _laid_out(rows, columns, [names[place] for place in places], _at(others, anchors), notes, text)


def _at(others: Axis, tokens: Sequence[int] | None) -> list[int] | None:
    """The columns of a word's own tokens, if it is among the others."""
    shown = others.shown
    return None if tokens is None or not set(tokens) <= set(shown) else [shown.index(token) for token in tokens]


def _laid_out(
    rows: Sequence[tuple[str, int | None, int, Tensor]],
    columns: Sequence[str],
    names: Sequence[str],
    own: Sequence[int] | None,
    notes: Sequence[str],
    text: str,
) -> Drawing:
    """Word, lines, the other tokens, and rows, from top to bottom. `own` are the columns below which the word stands."""
    cell = 18 if len(columns) <= 48 else 12
    left = 28 + max(text_width(label, FONT) for label, *_ in rows)
    start = 22 + 18 * len(notes) + max(text_width(name, FONT) for name in names)
    fan = start + _FAN
    top = fan + 8 + max(text_width(label, FONT) for label in columns)
    width = max(left + cell * len(columns), 16 + max(text_width(line, FONT) for line in notes)) + 16
    drawing = Drawing(round(width), round(top + cell * len(rows) + 16), f"{notes[0]}: {text}")
    for i, line in enumerate(notes):
        drawing.text(16, 22 + 18 * i, line)
    middle = len(columns) / 2 - len(names) / 2
    centers = [left + ((middle + i) if own is None else own[i]) * cell + cell / 2 for i in range(len(names))]
    for center, name in zip(centers, names, strict=True):
        drawing.text(center + 4, start, name, upright=True)
    _lines(drawing, rows, [(x, start + 6.0) for x in centers], left, fan, cell)
    for column, label in enumerate(columns):
        drawing.text(left + column * cell + cell / 2 + 4, top - 6, label, upright=True)
    for row, (label, color, _, values) in enumerate(rows):
        y = top + row * cell
        drawing.text(left - 16, y + cell / 2 + 4, label, "end")
        if color is not None:
            drawing.rectangle(left - 11, y + 1, 5, cell - 3, mixed(1.0, COLORS[color]))
        cells(drawing, values[None], None, left, y, cell, cell - 1, HEAT if color is None else COLORS[color])
    return drawing


def _lines(
    drawing: Drawing,
    rows: Sequence[tuple[str, int | None, int, Tensor]],
    starts: Sequence[tuple[float, float]],
    left: float,
    bottom: float,
    cell: float,
) -> None:
    """Lines from the word's tokens to the columns, the strongest on top; lines of several heads end side by side."""
    colors = {color for _, color, *_ in rows if color is not None}
    found = []
    for _, color, at, values in rows:
        weights = values.nan_to_num(0.0, 0.0, 0.0)
        largest = max(float(weights.max()), 1e-9)
        for column, weight in enumerate(weights.tolist() if color is not None else ()):
            if weight >= _LEAST * largest:
                found.append((weight / largest, color, at, column))
    for strength, color, at, column in sorted(found):
        assert color is not None
        beside = (color - (len(colors) - 1) / 2) * min(1.8, cell / (len(colors) + 1))
        end = left + column * cell + cell / 2 + beside
        drawing.line(_curve(starts[at], (end, bottom)), mixed(strength, COLORS[color], GROUND), 0.6 + 1.8 * strength)


def _curve(start: tuple[float, float], end: tuple[float, float]) -> list[tuple[float, float]]:
    """Points of a cubic curve that leaves and arrives upright."""
    (x, y), (to_x, to_y) = start, end
    shares = torch.linspace(0, 1, _STEPS).tolist()
    return [(x + (to_x - x) * (3 * s * s - 2 * s**3), y + (to_y - y) * s) for s in shares]
