"""The largest batch shape of a recipe."""

from __future__ import annotations

from ...core.batch import Batch
from ...data.batching.settings import Batching
from ...nn.cost.flops import BatchShape


def widest(batches: list[Batch], batching: Batching) -> BatchShape:
    """The shape of a full batch of rows as long as the longest among `batches`: the one that takes the most memory."""
    sides = [_sides(batch) for batch in batches]
    return _filled(max(length for length, _ in sides), max(source for _, source in sides), batching)


def allowed(batching: Batching, seq2seq: bool) -> BatchShape:
    """The shape of a full batch of the longest rows that the settings allow, for data that can't be read."""
    if seq2seq:
        return _filled(batching.max_length, batching.max_length, batching)
    return _filled(batching.context, 0, batching)


def _sides(batch: Batch) -> tuple[int, int]:
    """The length of the decoder's rows and of the encoder's; for a single stack, its rows' length and 0."""
    ids = batch.inputs["ids"].shape[1]
    if batch.inputs["ids"].ndim > 2:  # pixels
        target = batch.inputs["target"].shape[1] if "target" in batch.inputs else 0
        ids = batch.slots // batch.rows - target
    return (batch.inputs["target"].shape[1], ids) if "target" in batch.inputs else (ids, 0)


def _filled(length: int, source: int, batching: Batching) -> BatchShape:
    rows = max(1, batching.tokens // (length + source))
    return BatchShape(min(rows, batching.max_rows or rows), length, source)
