"""Draw attention as a still picture: a heat map with labels and small maps of every head, as SVG, PNG or PDF."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jaxtyping import Float
from markupsafe import Markup
from torch import Tensor

from ...core.optional_libraries import need
from ..svg import join, tag, text_width
from .attention import AttentionGroup, LayerAttention
from .axis import Axis

_INK, _SOFT, GROUND, _SHEET, HEAT = "#1c1b22", "#5d5b68", "#fbfaf8", "#f1efea", (59, 47, 181)
_EXCLUDED = (205, 201, 192)  # pairs that no weight is computed for
FONT = 12
_THUMB, _GAP = 58, 8
_MOST = 12  # layers and heads of small maps
_FINE = 4  # pixels of a PDF for each of ours: 288 to the inch


@dataclass
class Drawing:
    """Rectangles, lines and texts, in pixels, to be written as SVG, PNG or PDF."""

    width: int
    height: int
    title: str
    rectangles: list[tuple[float, float, float, float, str]] = field(default_factory=list)
    texts: list[tuple[float, float, str, str, bool]] = field(default_factory=list)
    lines: list[tuple[list[tuple[float, float]], str, float]] = field(default_factory=list)

    def rectangle(self, x: float, y: float, width: float, height: float, color: str) -> None:
        self.rectangles.append((x, y, width, height, color))

    def line(self, points: Sequence[tuple[float, float]], color: str, width: float) -> None:
        """Add a line through points, below all texts; later ones are above earlier ones."""
        self.lines.append(([(round(x, 2), round(y, 2)) for x, y in points], color, round(width, 2)))

    def text(self, x: float, y: float, text: str, anchor: str = "start", upright: bool = False) -> None:
        """Add a text with its baseline at y; `upright` ones run upwards from (x, y)."""
        self.texts.append((x, y, text, anchor, upright))

    def svg(self) -> str:
        """Return the picture as a standalone SVG file."""
        parts = [tag("rect", x=x, y=y, width=w, height=h, fill=color) for x, y, w, h, color in self.rectangles]
        for points, color, width in self.lines:
            d = "M" + "L".join(f"{x} {y}" for x, y in points)
            parts.append(tag("path", d=d, fill="none", stroke=color, stroke_width=width, stroke_linecap="round"))
        for x, y, text, anchor, upright in self.texts:
            turn = f"rotate(-90 {x} {y})" if upright else None
            parts.append(tag("text", text, x=x, y=y, text_anchor=anchor, transform=turn, fill=_INK))
        style = Markup(f"text{{font:{FONT}px system-ui,'Noto Sans','Noto Emoji',sans-serif;white-space:pre}}")
        return str(
            tag(
                "svg",
                tag("title", self.title),
                tag("style", style),
                tag("rect", width=self.width, height=self.height, fill=GROUND),
                join(*parts),
                xmlns="http://www.w3.org/2000/svg",
                viewBox=f"0 0 {self.width} {self.height}",
                width=self.width,
                height=self.height,
                role="img",
            )
        )

    def png(self, zoom: int = 2) -> bytes:
        """Return the picture as a PNG file, `zoom` pixels for each of ours."""
        file = io.BytesIO()
        self._pixels(zoom).save(file, "PNG")
        return file.getvalue()

    def pdf(self) -> bytes:
        """Return the picture as a page of a PDF file, in pixels as fine as print."""
        file = io.BytesIO()
        self._pixels(_FINE).save(file, "PDF", resolution=72.0 * _FINE, title=self.title)
        return file.getvalue()

    def _pixels(self, zoom: int) -> Any:
        """Draw the picture, with lines twice as fine at first, since Pillow does not smooth them."""
        need("a picture as PNG or PDF", "PIL")
        from PIL import Image

        if not self.lines:
            return self._drawn(zoom)
        return self._drawn(2 * zoom).resize((self.width * zoom, self.height * zoom), Image.Resampling.BOX)

    def _drawn(self, zoom: int) -> Any:
        need("a picture as PNG or PDF", "PIL")
        from PIL import Image, ImageDraw

        image = Image.new("RGB", (self.width * zoom, self.height * zoom), GROUND)
        draw = ImageDraw.Draw(image)
        for x, y, w, h, color in self.rectangles:
            left, top, right, bottom = (round(edge * zoom) for edge in (x, y, x + w, y + h))
            draw.rectangle((left, top, max(right - 1, left), max(bottom - 1, top)), fill=color)
        for points, color, width in self.lines:
            at = [(x * zoom, y * zoom) for x, y in points]
            draw.line(at, fill=color, width=max(1, round(width * zoom)), joint="curve")
        for x, y, text, anchor, upright in self.texts:
            font = _font(FONT * zoom)
            if not upright:
                side = {"start": "ls", "middle": "ms", "end": "rs"}[anchor]
                draw.text((x * zoom, y * zoom), text, fill=_INK, font=font, anchor=side)
                continue
            left, top, right, bottom = (round(v) for v in font.getbbox(text, anchor="ls"))
            label = Image.new("L", (max(right - left, 1), max(bottom - top, 1)))
            ImageDraw.Draw(label).text((-left, -top), text, fill=255, font=font, anchor="ls")
            turned = label.rotate(90, expand=True)
            image.paste(_INK, (round(x * zoom) + top, round(y * zoom) - turned.height), turned)
        return image


@cache
def _font(size: int) -> Any:
    """Return a font with many scripts if the system has one, else Pillow's own."""
    need("a picture as PNG or PDF", "PIL")
    from PIL import ImageFont

    for name in ("NotoSans-Regular.ttf", "DejaVuSans.ttf", "Arial Unicode.ttf", "arial.ttf"):
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return ImageFont.load_default(size)


def draw(
    group: AttentionGroup, axes: Mapping[str, Axis], index: int | None = None, head: int | None = None, text: str = ""
) -> Drawing:
    """Draw a layer of a group large, one head or the mean of its heads, and every layer and head small below."""
    layer = group.layers[-1] if index is None else group.layer(index)
    head = layer.heads[0] if head is None and len(layer.heads) == 1 else head
    weights = layer.weights.mean(0) if head is None else group.head(layer.index, head)
    computed = None if layer.computed is None else layer.computed[0 if head is None else layer.heads.index(head)]
    rows, columns = axes[group.query].row_labels, axes[group.key].labels
    cell = 18 if max(len(rows), len(columns)) <= 32 else 12
    left = 16 + max(text_width(label, FONT) for label in rows)
    top = 44 + max(text_width(label, FONT) for label in columns)
    small = _spread(group.layers)
    across = max(min(len(layer.heads), _MOST) for layer in small)
    width = max(left + cell * len(columns), 60 + across * (_THUMB + _GAP)) + 16
    below = top + cell * len(rows) + 40
    what = "mean of its heads" if head is None else f"head {head}"
    title = f"{group.name}, layer {layer.index}, {what}"
    drawing = Drawing(round(width), round(below + len(small) * (_THUMB + _GAP) + 8), f"{title}: {text}")
    drawing.text(16, 22, title)
    for column, label in enumerate(columns):
        drawing.text(left + column * cell + cell / 2 + 4, top - 6, label, upright=True)
    for row, label in enumerate(rows):
        drawing.text(left - 8, top + row * cell + cell / 2 + 4, label, "end")
    cells(drawing, weights, computed, left, top, cell, cell - 1)
    _thumbnails(drawing, small, below)
    return drawing


def _thumbnails(drawing: Drawing, layers: Sequence[LayerAttention], top: float) -> None:
    drawing.text(16, top - 10, "layers down, heads across")
    for row, layer in enumerate(layers):
        y = top + row * (_THUMB + _GAP)
        drawing.text(40, y + _THUMB / 2, str(layer.index), "end")
        for place in range(min(len(layer.heads), _MOST)):
            weights = layer.weights[place]
            side = _THUMB / max(weights.shape)
            computed = None if layer.computed is None else layer.computed[place]
            cells(drawing, weights, computed, 50 + place * (_THUMB + _GAP), y, side, side)


def cells(
    drawing: Drawing,
    weights: Float[Tensor, "T S"],
    computed: Tensor | None,
    left: float,
    top: float,
    cell: float,
    side: float,
    color: tuple[int, int, int] = HEAT,
) -> None:
    """Draw weights as squares: empty ones on the sheet's color, excluded ones gray."""
    weights = weights.nan_to_num(0.0, 0.0, 0.0)
    height, width = weights.shape
    gap = cell - side
    drawing.rectangle(left, top, width * cell - gap, height * cell - gap, _SHEET)
    largest = max(float(weights.max()), 1e-9)
    keep = None if computed is None else computed.tolist()
    for row, values in enumerate(weights.tolist()):
        for column, value in enumerate(values):
            x, y = round(left + column * cell, 2), round(top + row * cell, 2)
            if keep is not None and not keep[row][column]:
                drawing.rectangle(x, y, side, side, mixed(0.5, _EXCLUDED))
            elif value > 0.004 * largest:
                drawing.rectangle(x, y, side, side, mixed(value / largest, color))


def mixed(share: float, color: tuple[int, int, int], ground: str = _SHEET) -> str:
    """Return a color mixed with that of the ground, by default the sheet."""
    below = (int(ground[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(s + (c - s) * share):02x}" for s, c in zip(below, color, strict=True))


def _spread(layers: Sequence[LayerAttention]) -> list[LayerAttention]:
    """Return at most `_MOST` layers, evenly spread."""
    if len(layers) <= _MOST:
        return list(layers)
    return [layers[round(i * (len(layers) - 1) / (_MOST - 1))] for i in range(_MOST)]
