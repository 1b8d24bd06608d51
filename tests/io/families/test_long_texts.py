"""Longformer and BigBird besides parity: blocks drawn in training, one window for all layers, every backend."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

sys.path.insert(0, str(Path(__file__).parent))

from hub_models import inputs, ours, pair, theirs

from qkv.core.layout import Layout, Role
from qkv.nn.models.replace import replace


def test_global_tokens_are_a_role_besides_others() -> None:
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    layout = Layout.from_mask(mask).with_roles(torch.full((2, 3), int(Role.CLASS)))
    marked = layout.with_global(torch.tensor([[True, False, False], [False, False, True]]))
    assert marked.roles is not None
    assert marked.roles.tolist() == [[Role.CLASS | Role.GLOBAL, Role.CLASS, Role.CLASS], [Role.CLASS] * 3]
    with pytest.raises(ValueError, match=r"a mask of global tokens is \(batch, 3\) here, not \(3,\)"):
        layout.with_global(torch.ones(3))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["longformer", "big-bird"])
def test_compiled_they_are_one_graph_and_a_width_that_was_seen_needs_no_other(name: str) -> None:
    """In training, which draws random blocks, with dropout off."""
    torch.compiler.reset()
    both = pair(name)
    quiet = {
        "encoder.blocks.*.attention.dropout": 0.0,
        "encoder.blocks.*.dropout": 0.0,
        "encoder.embedding.dropout": 0.0,
    }
    given, model = inputs(both.case), replace(both.ours, quiet).model.train()
    layout = Layout.from_mask(given.mask)
    layout = layout if given.chosen is None else layout.with_global(given.chosen)
    compiled, graphs = torch.compile(model, backend="aot_eager", fullgraph=True), []
    for width in (45, 41, 38, 45, 41):
        ids = given.ids[:, :width]
        found, wanted = (gradients(f, model, ids, layout.slice(0, width)) for f in (compiled, model))
        assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(found, wanted, strict=True))
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[2:] == graphs[2:3] * 3
    torch.compiler.reset()


def gradients(call: Any, model: torch.nn.Module, ids: torch.Tensor, layout: Layout) -> list[torch.Tensor]:
    model.zero_grad()
    call(ids, layout=layout, labels=ids).loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("backend", ["reference", "tiled", "sdpa"])
@pytest.mark.parametrize("name", ["longformer", "big-bird"])
@torch.no_grad()
def test_patterns_of_blocks_and_global_tokens_on_every_backend(name: str, backend: str) -> None:
    both = pair(name)
    given = inputs(both.case)
    real, model = given.mask.bool(), replace(both.ours, {"encoder.blocks.*.attention.backend": backend}).model
    expected = theirs(both, given)[real]
    assert (ours(both, given, model)[real] - expected).norm() <= 1e-5 * expected.norm()
