"""The attention of one example with its tokens: kept as JSON, drawn as one large picture and many small ones."""

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

MOST_TOKENS = 40  # each way; beyond that nothing is legible
_MOST_LAYERS = _MOST_HEADS = 8


@dataclass(frozen=True)
class Picture:
    """`layers[i]["weights"][h][t][s]`, in 0 … 1: what head h of a layer gives column token s in the row of token t."""

    title: str
    rows: list[str]
    columns: list[str]
    layers: list[dict[str, Any]]

    @classmethod
    def of(cls, title: str, rows: Sequence[str], columns: Sequence[str], maps: Sequence[AttentionMap]) -> Picture:
        """From captured maps of a batch of one. Tokens beyond `MOST_TOKENS` are cut off."""
        rows, columns = list(rows)[:MOST_TOKENS], list(columns)[:MOST_TOKENS]
        layers = [
            {"name": m.name, "weights": _rounded(m.weights[0, :, : len(rows), : len(columns)].tolist())} for m in maps
        ]
        return cls(title, rows, columns, layers)

    def mean(self, layer: int = -1) -> list[list[float]]:
        """One layer's weights averaged over its heads."""
        heads = self.layers[layer]["weights"]
        return [[sum(cells) / len(heads) for cells in zip(*rows, strict=True)] for rows in zip(*heads, strict=True)]

    def draw(self) -> Markup:
        """The last layer averaged over heads, large; every layer and head, small (of many, the first eight heads)."""
        title = f"{self.title}: last layer, mean of its heads"
        grid = [
            (
                i + 1,
                [small_map(w, f"layer {i + 1}, head {h + 1}") for h, w in enumerate(layer["weights"][:_MOST_HEADS])],
            )
            for i, layer in ((i, self.layers[i]) for i in _spread(len(self.layers), _MOST_LAYERS))
        ]
        large = heat_map(self.mean(), self.rows, self.columns, title)
        return Markup(render("attention.html", picture=self, large=large, grid=grid))


def save(path: Path, pictures: Sequence[Picture]) -> None:
    """Write `attention.json`: a list of pictures, weights to four decimals."""
    path.write_text(json.dumps([asdict(p) for p in pictures], ensure_ascii=False), encoding="utf-8")


def load(path: Path) -> list[Picture]:
    """Read what `save` wrote; an absent file is no pictures. Raises ValueError where the file is something else."""
    if not path.exists():
        return []
    try:
        return [Picture(**item) for item in json.loads(path.read_text(encoding="utf-8"))]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} does not hold attention pictures: {error}") from None


def _spread(count: int, most: int) -> list[int]:
    """At most `most` of `count` indices, evenly spread, first and last among them."""
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)]


def _rounded(value: Any) -> Any:
    return [_rounded(v) for v in value] if isinstance(value, list) else round(value, 4)
