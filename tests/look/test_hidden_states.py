"""A word's states layer by layer: what the embedding and the blocks gave, and how far groups of them lie apart."""

from __future__ import annotations

import math

import pytest
import torch

from qkv.core.layout import Layout
from qkv.io.families import preset
from qkv.look.hidden_states import layer_states, separation
from qkv.nn.models.build import build


@pytest.mark.parametrize("name", ["gpt", "transformer", "bert-base"])
def test_states_are_what_the_layers_gave(name: str) -> None:
    sizes = {"vocab_size": 20, "d_model": 16, "n_layers": 2, "n_heads": 2}
    model = build(preset(name, **sizes, **({} if name == "transformer" else {"max_positions": 9})))
    model.train()
    ids = torch.tensor([[3, 4, 5, 0], [4, 7, 8, 9]])
    layout = Layout.from_lengths([3, 4])
    found = layer_states(model, ids, layout, [1, 0])
    assert [layer.name for layer in found] == ["embedding", "layer 1", "layer 2"] and model.training
    model.eval()
    stack = model.encoder if model.encoder is not None else model.decoder
    assert stack is not None
    with torch.no_grad():
        last = stack(ids, layout)[torch.tensor([0, 1]), torch.tensor([1, 0])]
        torch.testing.assert_close(stack.norm(found[-1].states), last)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_word_has_one_static_vector_where_positions_add_nothing() -> None:
    model = build(preset("gpt", vocab_size=20, d_model=16, n_layers=1, n_heads=2, position="rotary"))
    ids = torch.tensor([[3, 4, 5], [4, 7, 8]])
    static, mixed = layer_states(model, ids, Layout.full(3), [1, 0])
    assert torch.equal(static.states[0], static.states[1])
    assert separation(static.states, [0, 1]) == 0
    assert not torch.allclose(mixed.states[0], mixed.states[1])


def test_separation_is_distance_of_centers_over_spread() -> None:
    states = torch.tensor([[0.0, 1], [0, -1], [6, 1], [6, -1]])
    assert separation(states, [0, 0, 1, 1]) == pytest.approx(6)
    assert separation(states * 7 + 3, [5, 5, 2, 2]) == pytest.approx(6)  # neither scale, place nor names matter
    three = torch.tensor([[0.0, 0], [3, 0], [0, 4]]).repeat(2, 1) + torch.tensor([[1.0, 0]] * 3 + [[-1, 0]] * 3)
    assert separation(three, [0, 1, 2, 0, 1, 2]) == pytest.approx((3 + 4 + 5) / 3)
    assert separation(states[::2], [0, 1]) == math.inf
    assert separation(torch.full((4, 3), 0.1), [0, 0, 1, 1]) == 0
    with pytest.raises(ValueError, match="needs states of at least two groups"):
        separation(states, [1, 1, 1, 1])
