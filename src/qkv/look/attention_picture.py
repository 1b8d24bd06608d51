"""Attention of one example with its tokens: saved as JSON, drawn as one large heat map and many small ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from .attention_maps import AttentionMap
from .heatmap import heat_map, small_map
from .html import render

MOST_TOKENS = 40  # rows and columns; more would be illegible
_MOST_LAYERS = _MOST_HEADS = 8


@dataclass(frozen=True)
class Picture:
    """`layers[i]["weights"][h][t][s]` in 0 … 1 is the weight of column token s for row token t in head h of layer i."""

    title: str
    rows: list[str]
    columns: list[str]
    layers: list[dict[str, Any]]

    @classmethod
    def of(cls, title: str, rows: Sequence[str], columns: Sequence[str], maps: Sequence[AttentionMap]) -> Picture:
        """Make a picture from the attention maps of a batch of one. Tokens beyond `MOST_TOKENS` are left out."""
        rows, columns = list(rows)[:MOST_TOKENS], list(columns)[:MOST_TOKENS]
        layers = [
            {"name": m.name, "weights": _rounded(m.weights[0, :, : len(rows), : len(columns)].tolist())} for m in maps
        ]
        return cls(title, rows, columns, layers)

    def mean(self, layer: int = -1) -> list[list[float]]:
        """Return the weights of one layer, averaged over its heads."""
        heads = self.layers[layer]["weights"]
        return [[sum(cells) / len(heads) for cells in zip(*rows, strict=True)] for rows in zip(*heads, strict=True)]

    def draw(self) -> Markup:
        """Draw the last layer, averaged over heads, large; and small up to 8 layers, evenly spread, with 8 heads each."""
        title = f"{self.title}: last layer, mean of its heads"
        grid = []
        for i in _spread(len(self.layers), _MOST_LAYERS):
            heads = self.layers[i]["weights"][:_MOST_HEADS]
            grid.append((i + 1, [small_map(w, f"layer {i + 1}, head {h + 1}") for h, w in enumerate(heads)]))
        large = heat_map(self.mean(), self.rows, self.columns, title)
        return Markup(render("attention.html", picture=self, large=large, grid=grid))


def save(path: Path, pictures: Sequence[Picture]) -> None:
    """Write pictures to a JSON file (`attention.json`), weights to four decimals."""
    path.write_text(json.dumps([asdict(p) for p in pictures], ensure_ascii=False), encoding="utf-8")


def load(path: Path) -> list[Picture]:
    """Read a file of `save`; a missing file has no pictures. Raises ValueError for a file with other contents."""
    if not path.exists():
        return []
    try:
        return [Picture(**item) for item in json.loads(path.read_text(encoding="utf-8"))]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} does not hold attention pictures: {error}") from None


def _spread(count: int, most: int) -> list[int]:
    """Return at most `most` of `count` indices, evenly spread, with the first and the last."""
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)]


def _rounded(value: Any) -> Any:
    return [_rounded(v) for v in value] if isinstance(value, list) else round(value, 4)
