"""Random batches of the shapes that are timed."""

from __future__ import annotations

import torch

from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.nn.cost.flops import BatchShape
from qkv.nn.cost.images import image_batch, patches_of
from qkv.nn.models.transformer import Transformer


def batch_of(spec: Transformer, shape: BatchShape) -> Batch:
    """Random pixels, or random tokens with a label for each token of the text that the model writes or reads."""
    if patches_of(spec) is not None:
        batch = image_batch(spec, shape.rows)
        batch.inputs["ids"].normal_()
        return batch
    ids = torch.randint(spec.vocab_size, (shape.rows, shape.length))
    inputs = {"ids": ids, "layout": Layout.full(shape.length)}
    if shape.source:
        source = torch.randint(spec.vocab_size, (shape.rows, shape.source))
        inputs = {"ids": source, "layout": Layout.full(shape.source), "target": ids}
    labels = ids[:, 0] % 2 if spec.labels_sequences else ids
    return Batch(inputs, labels, {"loss": labels.numel()}, shape.tokens, shape.tokens)
