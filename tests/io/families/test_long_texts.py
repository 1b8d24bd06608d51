"""Longformer and BigBird besides parity: blocks drawn in training, one window for all layers, every backend."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

sys.path.insert(0, str(Path(__file__).parent))

from hub_cases import SIZES, inputs, ours, pair, theirs, transformers

from qkv.core.layout import Layout, Role
from qkv.nn.models.replace import replace
from qkv.runs.inference.run import load


@pytest.mark.parametrize(
    "width, sizes",
    [
        (45, {"max_position_embeddings": 64, "block_size": 2, "num_random_blocks": 2}),
        (1024, {"max_position_embeddings": 1088, "num_hidden_layers": 1}),  # drawn as the paper's code did
    ],
)
def test_big_bird_draws_as_transformers_does_in_training(width: int, sizes: dict[str, int], tmp_path: Path) -> None:
    """In evaluation its every random block is the first; in training it draws, each layer with its number as the seed."""
    torch.manual_seed(6)
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    hub: Any = transformers.BigBirdForMaskedLM(transformers.BigBirdConfig(**{**SIZES, **dropout, **sizes}))
    with torch.no_grad():
        for parameter in hub.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    hub.save_pretrained(tmp_path)
    mine: Any = load(tmp_path, device="cpu").model
    ids = torch.randint(6, 90, (1, width))
    first = mine(ids)
    torch.testing.assert_close(first, hub.eval()(ids).logits, rtol=1e-4, atol=1e-4)
    found, expected = mine.train()(ids), hub.train()(ids).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found, first, atol=1e-3)
    found.square().sum().backward()
    expected.square().sum().backward()
    own, other = mine.encoder.blocks[0].attention, hub.bert.encoder.layer[0].attention.self
    for a, b in ((own.q, other.query), (own.k, other.key), (own.v, other.value)):
        assert (a.weight.grad - b.weight.grad).norm() <= 1e-4 * b.weight.grad.norm()


def test_longformer_may_say_one_window_for_all_layers(tmp_path: Path) -> None:
    hub = transformers.LongformerForMaskedLM(transformers.LongformerConfig(**SIZES, attention_window=6))
    hub.save_pretrained(tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.json"
    config = json.loads(path.read_text())
    assert config["attention_window"] == [6, 6]
    path.write_text(json.dumps({**config, "attention_window": 6}))
    saved = load(tmp_path / "theirs", device="cpu").save(tmp_path / "ours", to="hub")
    assert json.loads((saved / "config.json").read_text())["attention_window"] == 6


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
    """In training, where random blocks are drawn, with dropout off."""
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
