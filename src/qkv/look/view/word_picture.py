"""Draw the attention of one word as a still picture: a row for each head, with what the word attends to."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..svg import text_width
from .attention import AttentionGroup
from .axis import Axis
from .picture import FONT, Drawing, cells

SHADES = "the strongest shade of a row is its largest weight"


def draw(
    group: AttentionGroup,
    axes: Mapping[str, Axis],
    focus: Mapping[str, list[int]],
    index: int | None = None,
    head: int | None = None,
    text: str = "",
) -> Drawing:
    """Draw what the tokens of a word attend to, or if it is among the keys alone, what attends to them: for each token, the
    mean of the heads of a layer and each head. `focus` has the places of the word on each axis."""
    layer = group.layers[-1] if index is None else group.layer(index)
    asks = group.query in focus
    word, others = (axes[group.query], axes[group.key]) if asks else (axes[group.key], axes[group.query])
    names, columns = (word.row_labels, others.labels) if asks else (word.labels, others.row_labels)
    places = focus[word.name]
    weights = layer.weights if asks else layer.weights.transpose(1, 2)
    heads = [i for i, number in enumerate(layer.heads) if head in (None, number)]
    rows, shown = [], []
    for place in places:
        of_place = weights[heads, place]
        parts = [(f"head {layer.heads[i]}", row) for i, row in zip(heads, of_place, strict=True)]
        parts = [("mean of heads", of_place.mean(0)), *parts] if len(parts) > 1 else parts
        label = names[place] if len(places) == 1 else f"{names[place]} ({word.shown[place]})"
        rows += [f"{label}   {name}" for name, _ in parts]
        shown += [row for _, row in parts]
    cell = 18 if len(columns) <= 48 else 12
    left = 16 + max(text_width(label, FONT) for label in rows)
    top = 62 + max(text_width(label, FONT) for label in columns)
    said = " ".join(dict.fromkeys(names[place] for place in places))
    title = (
        f"{group.name}, layer {layer.index}: what {said} attends to"
        if asks
        else (f"{group.name}, layer {layer.index}: what attends to {said}")
    )
    width = max(left + cell * len(columns), 16 + max(text_width(line, FONT) for line in (title, SHADES))) + 16
    drawing = Drawing(round(width), round(top + cell * len(rows) + 16), f"{title}: {text}")
    drawing.text(16, 22, title)
    drawing.text(16, 40, SHADES)
    for column, label in enumerate(columns):
        drawing.text(left + column * cell + cell / 2 + 4, top - 6, label, upright=True)
    for row, (label, values) in enumerate(zip(rows, torch.stack(shown).unsqueeze(1), strict=True)):
        drawing.text(left - 8, top + row * cell + cell / 2 + 4, label, "end")
        cells(drawing, values, None, left, top + row * cell, cell, cell - 1)
    return drawing
