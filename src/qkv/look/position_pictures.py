"""Pictures of position schemes: values by position, and dot products or biases by distance. Marks show where they rise."""

from __future__ import annotations

import torch
from markupsafe import Markup
from torch import Tensor

from ..core.layout import Layout
from ..nn.positions.base import Position, PositionModule
from ..nn.positions.bias import T5Buckets
from .analysis.position_criteria import NEAR, by_distance, drawn_module, layout_of, rises
from .chart import Series, line_chart
from .standalone_svg import HEIGHT, WIDTH, figure

LENGTH = NEAR


def picture(scheme: Position) -> str | None:
    """Return the picture of a scheme as an SVG file; None if it has nothing to draw.

    What is added to the embeddings is drawn by coordinate, with p₀ · p_k; tables are drawn as they are before training, from
    random numbers. Of rotations it is the dot product of a query and a key of ones at distance k, divided by their width.
    Of biases it is that of each head; of T5's the bucket's index. Dots mark the distances at which dot products rise.
    """
    if isinstance(scheme, T5Buckets):
        return figure(*_buckets(scheme))
    module = drawn_module(scheme, seed=0)
    layout = layout_of(module, LENGTH)
    products = by_distance(scheme)
    charts = [*_added(module, layout, products), *_rotated(module, layout, products), *_biased(module, layout)]
    return figure(*charts) if charts else None


def _added(module: PositionModule, layout: Layout, products: Tensor | None) -> list[Markup]:
    values = module.embed(layout)
    if values is None or products is None:
        return []
    table = values.reshape(LENGTH, -1).float()
    some = [i for i in (0, 8, 16, 32) if i < table.shape[1]]
    lines = [Series(f"coordinate {i}", _points(table[:, i])) for i in some]
    untrained = " before training" if any(True for _ in module.parameters()) else ""
    label = "patch k" if layout.grid is not None else "distance k"
    return [
        line_chart(f"Values{untrained}", lines, x_label="position", width=WIDTH, height=HEIGHT),
        _products(f"Dot products{untrained}", "p₀ · pₖ", products, label),
    ]


def _rotated(module: PositionModule, layout: Layout, products: Tensor | None) -> list[Markup]:
    if module.tables(layout) is None or products is None:
        return []
    return [_products("Dot products of ones", "q_t · k_(t−k) / d", products, "distance k")]


def _products(title: str, name: str, products: Tensor, label: str) -> Markup:
    """Dot products by distance, with a dot wherever one is higher than that of the distance before."""
    higher = [i for first, last in rises(products) for i in range(first + 1, last + 1)]
    marks = Series("higher than one nearer", [(float(i), float(products[i])) for i in higher], dots=True, joined=False)
    return line_chart(title, [Series(name, _points(products)), marks], x_label=label, width=WIDTH, height=HEIGHT)


def _biased(module: PositionModule, layout: Layout) -> list[Markup]:
    bias = module.bias()
    if bias is None:
        return []
    values = bias(layout.queries(), layout.keys())
    rows = values.reshape(-1, LENGTH, LENGTH)[:4, -1].flip(-1).float()
    lines = [Series(f"head {h}", _points(row)) for h, row in enumerate(rows)]
    return [line_chart("Bias of the scores", lines, x_label="distance k", width=WIDTH, height=HEIGHT)]


def _buckets(scheme: T5Buckets) -> list[Markup]:
    distances = torch.arange(2 * scheme.max_distance)
    lines = [Series("k before the query", _points(scheme.bucket(-distances)))]
    if scheme.bidirectional is not False:
        lines.append(Series("k after the query", _points(scheme.bucket(distances))))
    return [line_chart("Bucket", lines, x_label="distance k", width=WIDTH, height=HEIGHT)]


def _points(values: Tensor) -> list[tuple[float, float]]:
    return [(float(i), float(value)) for i, value in enumerate(values)]
