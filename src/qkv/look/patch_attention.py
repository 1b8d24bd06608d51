"""Attention over the patches of a picture or spectrogram, drawn on it: patches without attention are veiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import isfinite
from typing import Any

from markupsafe import Markup

from .head_grid import chosen_heads, diverged
from .html import render
from .svg import join, number, tag

_LEVELS = 20  # shades of the veil
_VEIL = 0.88  # opacity over a patch without attention
_LARGE, _SMALL = 300.0, 96.0  # the longer side of a drawing, in pixels


@dataclass(frozen=True)
class PatchPicture:
    """`layers[i]["weights"][h][p]` in 0 … 1 is the weight of patch p, row by row, in head h of layer i.

    image:     the picture, a PNG in base64; size: its height and width in pixels; grid: rows and columns of patches.
    query:     whose attention is drawn, such as ", class token", in continuation of "mean of its heads".
    words:     [label, weights] of each token of an output that attends to the picture, in the last layer.
    facts:     [name, value] of what the model put out.
    upward:    whether the first row is the lowest, as that of a spectrogram.
    """

    title: str
    image: str
    size: list[int]
    grid: list[int]
    query: str
    layers: list[dict[str, Any]]
    words: list[Any] = field(default_factory=list)
    facts: list[list[str]] = field(default_factory=list)
    note: str = ""
    upward: bool = False

    def mean(self, layer: int = -1) -> list[float]:
        """Return the weights of one layer, averaged over its heads."""
        heads = self.layers[layer]["weights"]
        return [sum(cells) / len(heads) for cells in zip(*heads, strict=True)]

    def draw(self, name: str) -> Markup:
        """Draw the last layer, averaged over heads, large; each layer and head small; and each word. `name` is the prefix of
        element ids on the page."""
        image = tag(
            "image",
            href=f"data:image/png;base64,{self.image}",
            width=self.grid[1],
            height=self.grid[0],
            preserveAspectRatio="none",
            style="image-rendering:pixelated",
        )
        defined = tag(
            "svg", tag("g", image, id=f"{name}-image"), width=0, height=0, class_="defined", aria_hidden="true"
        )
        large = self._on_image(name, self.mean(), f"{self.title}: last layer, mean of its heads", _LARGE)
        plain = self._on_image(name, [1.0] * (self.grid[0] * self.grid[1]), f"{self.title}: input", _LARGE)
        grid = []
        layers, heads, left_out = chosen_heads(self.layers)
        for i in layers:
            row = []
            for h in heads[: len(self.layers[i]["weights"])]:
                label, weights = f"layer {i + 1}, head {h + 1}", self.layers[i]["weights"][h]
                small = self._on_image(name, weights, label, _SMALL)
                row.append((label, small, self._on_image(name, weights, f"{label}, enlarged", 2 * _LARGE)))
            grid.append((i + 1, row))
        words = [(label, self._on_image(name, weights, str(label), _SMALL)) for label, weights in self.words]
        return join(
            defined,
            Markup(
                render(
                    "attention.html",
                    picture=self,
                    plain=plain,
                    large=large,
                    grid=grid,
                    words=words,
                    query=self.query,
                    left_out=left_out,
                    diverged=diverged(self.layers),
                )
            ),
        )

    def _on_image(self, name: str, weights: Sequence[float], label: str, side: float) -> Markup:
        """The picture under a veil; a patch with the largest weight has none."""
        rows, columns = self.grid
        weights = [w if isfinite(w) else 0.0 for w in weights]
        largest = max(weights) or 1.0
        levels = sorted((round(_LEVELS * (1 - w / largest)), i) for i, w in enumerate(weights))
        paths = [
            tag(
                "path",
                d="".join(f"M{i % columns} {i // columns}h1v1h-1z" for _, i in cells),
                fill_opacity=number(_VEIL * level / _LEVELS),
            )
            for level, cells in groupby(levels, key=lambda pair: pair[0])
            if level
        ]
        scale = side / max(self.size)
        height, width = (round(pixels * scale) for pixels in self.size)
        return tag(
            "svg",
            tag("title", label),
            tag("use", href=f"#{name}-image"),
            *paths,
            class_="veiled upward" if self.upward else "veiled",
            viewBox=f"0 0 {columns} {rows}",
            preserveAspectRatio="none",
            width=max(width, 12),
            height=max(height, 12),
            role="img",
            aria_label=label,
        )
