"""Importance by gradient: equal to finite differences of a factor of each head's output, row by row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from qkv.core.batch import Batch
from qkv.io.families import preset
from qkv.nn.activations import ScaleActivation, intervene
from qkv.nn.models.build import build
from qkv.nn.pruning.importance import gradient_importance, normalized

IDS = torch.randint(11, (4, 6), generator=torch.Generator().manual_seed(0))


def decoder() -> nn.Module:
    spec = preset("gpt2", vocab_size=11, d_model=8, n_layers=2, n_heads=2, max_positions=16)
    return build(spec, seed=0, dtype=torch.float64)


def loss(model: nn.Module, batch: Batch) -> Tensor:
    ids = batch.inputs["ids"]
    return nn.functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="sum")


def batch(rows: slice) -> Batch:
    return Batch({"ids": IDS[rows]})


NAMES = {"decoder.0": "decoder.layers.0.attention.heads", "decoder.1": "decoder.layers.1.attention.heads"}


def test_importance_of_heads_is_the_gradient_of_their_gates():
    model = decoder()
    found = gradient_importance(model, [batch(slice(0, 3)), batch(slice(3, 4))], loss, NAMES)
    assert model.training
    model.eval()
    for layer, name in NAMES.items():
        for head in (0, 1):
            slopes = []
            for row in range(4):
                ends = []
                for step in (1e-5, -1e-5):
                    with torch.no_grad(), intervene(model, {name: ScaleActivation(1 + step, heads=head)}):
                        ends.append(float(loss(model, batch(slice(row, row + 1)))))
                slopes.append(abs(ends[0] - ends[1]) / 2e-5)
            assert float(found[layer][head]) == pytest.approx(sum(slopes) / 4, rel=1e-4)


def test_a_neuron_that_nothing_reads_has_no_importance():
    model = decoder()
    name = "decoder.layers.1.feedforward.neurons"
    found = gradient_importance(model, [batch(slice(0, 4))], loss, {"decoder.1": name})
    assert found["decoder.1"].shape == (32,)
    with torch.no_grad():
        model.decoder.blocks[1].feedforward.down.weight[:, 5] = 0.0
    assert float(gradient_importance(model, [batch(slice(0, 4))], loss, {"decoder.1": name})["decoder.1"][5]) == 0.0


def test_frozen_models_have_importance_too():
    model = decoder().requires_grad_(False)
    assert all(value.gt(0).all() for value in gradient_importance(model, [batch(slice(0, 4))], loss, NAMES).values())


def test_layers_are_divided_by_their_norm():
    found = normalized({"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([0.0, 0.0])})
    torch.testing.assert_close(found["a"], torch.tensor([0.6, 0.8]))
    assert not found["b"].any()


def test_importance_without_examples_is_refused():
    with pytest.raises(ValueError, match="there are no examples to measure importance on"):
        gradient_importance(decoder(), [], loss, NAMES)
