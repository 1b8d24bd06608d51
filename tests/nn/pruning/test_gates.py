"""Hard concrete gates: the distribution of the paper, and gates of useless heads that close."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from qkv.core.batch import Batch
from qkv.io.families import preset
from qkv.nn.models.build import build
from qkv.nn.pruning.gates import Gates, gate_importance
from qkv.nn.pruning.units import attention_layers


def test_the_share_of_open_gates_is_the_penalty():
    gates = Gates(4)
    with torch.no_grad():
        gates.log_alpha.copy_(torch.tensor([-3.0, -1.0, 0.0, 2.0]))
        drawn = torch.stack([gates.sample() for _ in range(20_000)])
    assert float(drawn.min()) >= 0 and float(drawn.max()) <= 1
    torch.testing.assert_close((drawn > 0).float().mean(0), gates.open_probability(), atol=0.02, rtol=0)
    assert 0 < float((drawn == 1).float().mean()) < 1  # exactly open and exactly closed both occur


def test_gates_of_useless_heads_close():
    spec = preset("gpt2", vocab_size=11, d_model=12, n_layers=1, n_heads=3, max_positions=16)
    model = build(spec, seed=0)
    with torch.no_grad():
        model.decoder.blocks[0].attention.out.weight[:, 4:8] = 0.0  # head 1 does nothing
        model.decoder.blocks[0].attention.out.weight[:, :4] *= 20
        model.decoder.blocks[0].attention.v.weight[:4] *= 20
    ids = torch.randint(11, (8, 6), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted = model(ids)

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return (model(batch.inputs["ids"]) - wanted).square().mean() * 100

    before = torch.random.get_rng_state()
    weights = [p.detach().clone() for p in model.parameters()]
    found = gate_importance(model, [Batch({"ids": ids})] * 150, loss, attention_layers(model), penalty=0.05)
    assert float(found["decoder.0"][1]) < 0.3 < 0.9 < float(found["decoder.0"][0])
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(p.requires_grad and torch.equal(p, w) for p, w in zip(model.parameters(), weights, strict=True))


def test_gates_without_examples_are_refused():
    model = build(preset("gpt2", vocab_size=11, d_model=12, n_layers=1, n_heads=3, max_positions=16), seed=0)
    with pytest.raises(ValueError, match="there are no examples to train gates on"):
        gate_importance(model, [], lambda m, b: torch.zeros(()), attention_layers(model))
