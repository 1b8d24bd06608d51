"""Pictures of position schemes: values by position, and dot products or biases by distance."""

from __future__ import annotations

import torch
from markupsafe import Markup
from torch import Tensor

from ..core.layout import Layout
from ..nn.positions.base import Position, PositionModule, Widths
from ..nn.positions.bias import T5Buckets
from .chart import Series, line_chart
from .standalone_svg import HEIGHT, WIDTH, figure

LENGTH, D_MODEL, N_HEADS = 64, 64, 4


def picture(scheme: Position) -> str | None:
    """Return the picture of a scheme as an SVG file; None if it has nothing to draw before it is trained.

    What is added to the embeddings is drawn by coordinate, with p₀ · p_k. Of rotations it is the dot product of a query and
    a key of ones at distance k, divided by their width. Of biases it is that of each head; of T5's the bucket's index.
    """
    if isinstance(scheme, T5Buckets):
        return figure(*_buckets(scheme))
    layout = Layout.full(LENGTH)
    module = scheme.module(Widths(D_MODEL, N_HEADS, D_MODEL // N_HEADS, LENGTH))
    if any(True for _ in module.parameters()):
        return None
    with torch.no_grad():
        charts = [*_added(module, layout), *_rotated(module, layout), *_biased(module, layout)]
    return figure(*charts) if charts else None


def _added(module: PositionModule, layout: Layout) -> list[Markup]:
    values = module.embed(layout)
    if values is None:
        return []
    table = values.reshape(LENGTH, -1).float()
    some = [i for i in (0, 8, 16, 32) if i < table.shape[1]]
    lines = [Series(f"coordinate {i}", _points(table[:, i])) for i in some]
    products = Series("p₀ · pₖ", _points(table @ table[0]))
    return [
        line_chart("Values", lines, x_label="position", width=WIDTH, height=HEIGHT),
        line_chart("Dot products", [products], x_label="distance k", width=WIDTH, height=HEIGHT),
    ]


def _rotated(module: PositionModule, layout: Layout) -> list[Markup]:
    tables = module.tables(layout)
    if tables is None:
        return []
    width = D_MODEL // N_HEADS
    ones = torch.ones(1, LENGTH, 1, width)
    q, k = module.rotate_queries(ones, tables)[0, :, 0], module.rotate_keys(ones, tables)[0, :, 0]
    last = k.flip(0) @ q[-1] / width  # from the last query back to the first key
    back = Series("q_t · k_(t−k) / d", _points(last))
    return [line_chart("Dot products of ones", [back], x_label="distance k", width=WIDTH, height=HEIGHT)]


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
