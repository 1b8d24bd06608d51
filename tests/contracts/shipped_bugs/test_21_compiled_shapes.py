"""Bug 21 of those that others shipped: compiled shapes."""

from __future__ import annotations

import pytest
import torch
from small import (
    alone,
    ids,
    model,
    packed,
    padded,
    same,
)

from qkv.nn.positions.bias import ALiBi


@pytest.mark.slow
def test_bug_21_one_compiled_model_serves_batches_of_every_shape() -> None:
    """Lengths, padding and packing that change from batch to batch give what eager gives, dropout off."""
    torch.compiler.reset()
    built = model("decoder", position=ALiBi(), layers=1)
    compiled = torch.compile(built, backend="eager", fullgraph=True)
    for layout in (alone(6), alone(9), padded([7, 2], "left"), packed([[3, 4], [5]])):
        tokens = ids(2, layout.shape[1], seed=layout.shape[1])
        valid = layout.valid.expand(2, -1)
        with torch.no_grad():
            same(compiled(tokens, layout=layout)[valid], built(tokens, layout=layout)[valid])
