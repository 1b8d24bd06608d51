"""Bubble and number of microbatches in flight of each pipeline schedule, in closed form.

With forward, input and weight passes of f, i and w seconds a microbatch, p stages and v chunks of each:

    GPipe, 1F1B       (p − 1) (f + i + w)          in flight: all m; p − s on stage s
    interleaved 1F1B  (p − 1) (f + i + w) / v      2 (p − 1 − s) + (v − 1) p + 1 chunks, of 1/v of the layers each
    ZB-H1             (p − 1) (f + i − w)          p

(Narayanan et al. 2021, §2.2; Qi et al. 2023, §2). `parallel.model_parallel.schedules` has the order of passes that follows.
"""

from __future__ import annotations

from .layout import RankLayout


def bubble(layout: RankLayout, forward: float, backward: float) -> float:
    """Return the idle seconds per step of the slowest stage. A weight pass is taken to last as long as a forward pass."""
    p = layout.pipeline
    if layout.schedule == "zb-h1":
        return (p - 1) * max(backward - forward, 0.0)
    return (p - 1) / layout.chunks * (forward + backward)


def in_flight(layout: RankLayout, stage: int) -> float:
    """Return how many microbatches' activations a rank of a stage holds at once, counted over all its layers."""
    m, p, v = layout.microbatches, layout.pipeline, layout.chunks
    if layout.schedule == "gpipe":
        return m
    if layout.schedule == "zb-h1":
        return min(m, p)
    if v > 1:
        return min(v * m, 2 * (p - 1 - stage) + (v - 1) * p + 1) / v
    return min(m, p - stage)
