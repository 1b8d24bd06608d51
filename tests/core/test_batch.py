"""A batch moves as one, and leaves what is no tensor alone."""

from __future__ import annotations

import torch

from qkv.core.batch import Batch
from qkv.core.layout import Layout


def test_to_moves_every_tensor_and_layout() -> None:
    ids, labels = torch.arange(4)[None], torch.ones(1, 4, dtype=torch.long)
    batch = Batch({"ids": ids, "layout": Layout.full(4), "note": "x"}, labels, {"loss": 4}, 4, 4, {"line": 7})
    moved = batch.to("meta")
    assert moved.labels is not None and moved.labels.device.type == "meta"
    assert moved.inputs["ids"].device.type == moved.inputs["layout"].device.type == "meta"
    assert moved.inputs["layout"].start == 0 and moved.inputs["note"] == "x"
    assert (moved.counts, moved.position, moved.tokens) == ({"loss": 4}, {"line": 7}, 4)
    assert ids.device.type == "cpu" and Batch({"ids": ids}).to("meta").labels is None
