"""Attention of one example with its tokens: saved as JSON, drawn as one large heat map and a small one for each head."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ..core import several
from ..core.atomic import write_file
from .attention_maps import AttentionMap
from .head_grid import chosen_heads, diverged, rounded
from .heatmap import enlarged_map, heat_map, label_definitions, small_map
from .html import render
from .patch_attention import PatchPicture
from .svg import join

MOST_TOKENS = 40  # rows and columns; more would be illegible


@dataclass(frozen=True)
class Picture:
    """`layers[i]["weights"][h][t][s]` in 0 … 1 is the weight of column token s for row token t in head h of layer i.

    facts: [name, value] of what the model put out. note: which tokens are drawn if not all are.
    """

    title: str
    rows: list[str]
    columns: list[str]
    layers: list[dict[str, Any]]
    facts: list[list[str]] = field(default_factory=list)
    note: str = ""

    @classmethod
    def of(cls, title: str, rows: Sequence[str], columns: Sequence[str], maps: Sequence[AttentionMap]) -> Picture:
        """Make a picture from the attention maps of a batch of one. Tokens beyond `MOST_TOKENS` are left out."""
        most, longest = MOST_TOKENS, max(len(rows), len(columns))
        layers = [{"name": m.name, "weights": rounded(m.weights[0, :, :most, :most].tolist())} for m in maps]
        note = f"The first {most} of {longest:,} tokens are drawn" if longest > most else ""
        return cls(title, list(rows)[:most], list(columns)[:most], layers, note=note)

    def mean(self, layer: int = -1) -> list[list[float]]:
        """Return the weights of one layer, averaged over its heads."""
        heads = self.layers[layer]["weights"]
        return [[sum(cells) / len(heads) for cells in zip(*rows, strict=True)] for rows in zip(*heads, strict=True)]

    def draw(self, name: str = "attention") -> Markup:
        """Draw the last layer, averaged over heads, large; and small up to 8 layers, evenly spread, with 8 heads each, which
        enlarge. `name` is the prefix of element ids on the page."""
        layers, heads, left_out = chosen_heads(self.layers)
        grid = []
        for i in layers:
            row = []
            for h in heads[: len(self.layers[i]["weights"])]:
                label, weights = f"layer {i + 1}, head {h + 1}", self.layers[i]["weights"][h]
                cells = f"{name}-{i}-{h}"
                large = enlarged_map(self.rows, self.columns, f"{label}, enlarged", f"{name}-labels", cells)
                row.append((label, small_map(weights, label, cells=cells), large))
            grid.append((i + 1, row))
        large = heat_map(self.mean(), self.rows, self.columns, f"{self.title}: last layer, mean of its heads")
        page = render(
            "attention.html",
            picture=self,
            plain="",
            large=large,
            grid=grid,
            words=[],
            query="",
            left_out=left_out,
            diverged=diverged(self.layers),
        )
        return join(label_definitions(self.rows, self.columns, f"{name}-labels"), Markup(page))


AnyPicture = Picture | PatchPicture


def save(path: Path | str, pictures: Sequence[AnyPicture]) -> None:
    """Write pictures to a JSON file (`attention.json`), weights to four decimals."""
    write_file(several.path(path), json.dumps([asdict(p) for p in pictures], ensure_ascii=False).encode())


def load(path: Path | str) -> list[AnyPicture]:
    """Read a file of `save`; a missing file has no pictures. Raises ValueError for a file with other contents."""
    path = several.path(path)
    if not path.exists():
        return []
    try:
        items = json.loads(path.read_text(encoding="utf-8"))
        return [PatchPicture(**item) if "grid" in item else Picture(**item) for item in items]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} does not hold attention pictures: {error}") from None
