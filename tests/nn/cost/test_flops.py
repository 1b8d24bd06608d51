"""Parameters and FLOPs by part add up to the model's own."""

from __future__ import annotations

from typing import Any

import pytest

from qkv.io.families import preset
from qkv.nn.cost.flops import BatchShape, parts, training_flops

SMALL: dict[str, Any] = {"vocab_size": 50, "d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 24}


@pytest.mark.parametrize(
    ("name", "changes", "shape"),
    [
        ("gpt2", {}, BatchShape(3, 11)),
        ("llama", {"head.tied": False}, BatchShape(1, 7)),
        ("gpt2", {"decoder.blocks.*.attention": "none"}, BatchShape(2, 5)),
        ("transformer", {}, BatchShape(2, 9, 5)),
        ("transformer", {"tie_embeddings": False, "source_vocab_size": 30, "head.tied": False}, BatchShape(2, 9, 5)),
    ],
)
def test_parts_add_up(name: str, changes: dict[str, Any], shape: BatchShape) -> None:
    spec = preset(name, **SMALL).replace(changes)
    found = {part.name: part for part in parts(spec, shape)}
    assert sum(part.parameters for part in found.values()) == spec.n_parameters
    assert sum(part.flops for part in found.values()) == shape.rows * spec.cost(shape.length, shape.source).flops
    assert all(part.parameters >= 0 and part.flops >= 0 for part in found.values())
    # Norms and positions are what is left over, so they must not hide what was forgotten.
    assert found["other"].parameters <= 16 * 50 + 64 * SMALL["n_layers"] * 4 or name == "gpt2"


def test_a_worked_example() -> None:
    """Two layers of width 16: attention 4 d² + 4 d, feed-forward 2 · 16 · 24 + 24 + 16, a shared table of 50 · 16."""
    found = {part.name: part.parameters for part in parts(preset("gpt2", **SMALL), BatchShape(1, 8))}
    assert found["decoder attention"] == 2 * (4 * 16 * 16 + 4 * 16)
    assert found["decoder feed-forward"] == 2 * (2 * 16 * 24 + 24 + 16)
    assert found["embedding tables"] == 50 * 16
    assert found["head"] == 0
    assert found["other"] == 1024 * 16 + 5 * 2 * 16  # learned positions, and five norms


def test_training_is_three_forward_passes_of_every_row() -> None:
    spec = preset("transformer", **SMALL)
    assert training_flops(spec, BatchShape(4, 6, 5)) == 3 * 4 * spec.cost(6, 5).flops
    assert BatchShape(4, 6, 5).tokens == 44
    assert (str(BatchShape(4, 6, 5)), str(BatchShape(4, 6))) == ("4 × (5 + 6)", "4 × 6")
