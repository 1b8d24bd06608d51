"""Attention rollout by its definition (Abnar & Zuidema 2020)."""

from __future__ import annotations

import torch

from qkv.look.view.axis import Axis
from qkv.look.view.rollout import MOST_TOKENS, rollout, rollout_group
from qkv.nn.attention import tap
from qkv.nn.attention.attend import attend
from qkv.nn.patterns.basic import causal


def test_products_of_layers_with_their_residuals() -> None:
    first, second = torch.rand(2, 5, 5).softmax(-1)
    half = torch.eye(5) / 2
    one, two = rollout([first, second])
    torch.testing.assert_close(one, first / 2 + half)
    torch.testing.assert_close(two, (second / 2 + half) @ (first / 2 + half))
    torch.testing.assert_close(two.sum(-1), torch.ones(5))
    torch.testing.assert_close(rollout([torch.zeros(3, 3)])[0], torch.eye(3))


def test_a_group_has_one_head_for_each_layer() -> None:
    x = torch.randn(1, 6, 2, 4)
    with tap.record_attention() as requests:
        for i in range(3):
            attend(x * (i + 1), x, x, pattern=causal(), name=f"decoder.blocks.{i}.attention")
    axis = Axis("text", tuple("cde"), (2, 3, 4), 6)
    layers = [[request] for request in requests]
    group = rollout_group("decoder", layers, axis)
    assert group is not None and [layer.index for layer in group.layers] == [0, 1, 2]
    expected = rollout([tap.weights(request)[0].mean(0) for request in requests])
    for layer, product in zip(group.layers, expected, strict=True):
        torch.testing.assert_close(layer.weights[0], product[2:5, 2:5])
    assert rollout_group("decoder", layers[:1], axis) is None
    assert rollout_group("decoder", layers, Axis("text", ("a",), (0,), MOST_TOKENS + 1)) is None
