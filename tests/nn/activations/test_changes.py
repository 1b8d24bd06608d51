"""Changes of activations: means, scales and directions, and how they are shown."""

from __future__ import annotations

import torch
from torch import nn

from qkv.io.families import preset
from qkv.nn.activations import Add, Mean, ScaleActivation, intervene, record
from qkv.nn.models.build import build

IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])


def decoder(**changes: object) -> nn.Module:
    spec = preset("gpt2", vocab_size=11, d_model=8, n_layers=2, n_heads=2, max_positions=16)
    return build(spec.replace(changes), seed=0).eval()


@torch.no_grad()
def test_means_scales_and_directions():
    model = decoder()
    with record(model) as at:
        model(IDS)
    x = at["decoder.layers.0.feedforward"]
    mean, direction = x.mean((0, 1)), torch.arange(8.0)
    for change, expected in [
        (Mean(), mean.expand_as(x)),
        (Mean(mean), mean.expand_as(x)),
        (ScaleActivation(0.5), x / 2),
        (Add(direction, 2.0), x + 2 * direction),
        ([ScaleActivation(2.0), Add(direction)], 2 * x + direction),
    ]:
        with intervene(model, {"decoder.layers.0.feedforward": change}), record(model) as changed:
            model(IDS)
        torch.testing.assert_close(changed["decoder.layers.0.feedforward"], expected)


def test_changes_are_shown_by_what_they_select():
    assert (
        repr(Add(torch.zeros(8), 2.0, positions=[1, 2])) == "Add(positions=[1, 2], direction=tensor of (8,), scale=2.0)"
    )
