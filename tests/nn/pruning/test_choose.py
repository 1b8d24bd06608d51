"""The least important parts: in order, in groups, and never all of a layer."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qkv.nn.pruning.choose import elbow, least_heads, least_layers, least_neurons, removal_order
from qkv.nn.pruning.units import AttentionLayer


def layer(name: str, heads: int, group: int = 1) -> AttentionLayer:
    return AttentionLayer(name, name.replace(".", ".blocks."), "attention", heads, group)


def test_the_least_heads_over_all_layers():
    importance = {"decoder.0": torch.tensor([0.1, 0.9, 0.2, 0.8]), "decoder.1": torch.tensor([0.3, 0.4, 0.5, 0.05])}
    layers = {name: layer(name, 4) for name in importance}
    assert least_heads(importance, layers, 3 / 8) == {"decoder.0": [0, 2], "decoder.1": [3]}


def test_heads_that_share_keys_go_together():
    importance = {"decoder.0": torch.tensor([0.1, 0.9, 0.2, 0.3])}
    assert least_heads(importance, {"decoder.0": layer("decoder.0", 4, group=2)}, 0.5) == {"decoder.0": [2, 3]}


@given(
    sizes=st.lists(st.tuples(st.integers(1, 6), st.sampled_from([1, 2, 3])), min_size=1, max_size=5),
    share=st.floats(0, 0.99),
    seed=st.integers(0, 99),
)
def test_no_layer_is_emptied_and_no_more_than_asked(sizes: list[tuple[int, int]], share: float, seed: int):
    layers = {f"decoder.{i}": layer(f"decoder.{i}", n * group, group) for i, (n, group) in enumerate(sizes)}
    generator = torch.Generator().manual_seed(seed)
    importance = {name: torch.rand(one.n_heads, generator=generator) for name, one in layers.items()}
    chosen = least_heads(importance, layers, share)
    assert all(len(heads) < layers[name].n_heads for name, heads in chosen.items())
    total = sum(one.n_heads for one in layers.values())
    assert sum(map(len, chosen.values())) <= round(share * total)
    for name, heads in chosen.items():
        group = layers[name].group
        assert all((h // group * group + i) in heads for h in heads for i in range(group))


def test_the_same_share_of_neurons_of_each_layer():
    importance = {"a": torch.tensor([0.4, 0.1, 0.3, 0.2]), "b": torch.tensor([1.0, 2.0])}
    assert least_neurons(importance, 0.5) == {"a": [1, 3], "b": [0]}
    assert least_neurons({"a": torch.tensor([1.0])}, 0.9) == {"a": []}


def test_the_least_layers():
    importance = {"encoder": torch.tensor([0.0, 0.1]), "decoder": torch.tensor([0.5, 0.2])}
    assert least_layers(importance, 2) == {"encoder": [0], "decoder": [1]}
    with pytest.raises(ValueError, match="3 of 4 layers can't be removed"):
        least_layers(importance, 3)


def test_the_order_of_removal_leaves_the_best_of_each_layer():
    importance = {"decoder.0": torch.tensor([0.1, 0.9, 0.2]), "decoder.1": torch.tensor([0.3])}
    layers = {"decoder.0": layer("decoder.0", 3), "decoder.1": layer("decoder.1", 1)}
    assert removal_order(importance, layers) == [("decoder.0", range(1)), ("decoder.0", range(2, 3))]


@pytest.mark.parametrize("sign", [1, -1])
def test_the_elbow_is_farthest_from_the_chord(sign: int):
    """By the distance of each point from the line through the ends, after both axes are brought to 0 … 1."""
    points = [(0.0, 1.0), (0.1, 1.1), (0.4, 1.3), (0.5, 3.0), (0.9, 9.0)]
    unit = torch.tensor([(x / 0.9, (y - 1) / 8) for x, y in points])
    distances = (unit[:, 0] - unit[:, 1]) / 2**0.5
    assert elbow([(x, sign * y) for x, y in points]) == int(distances.argmax()) == 2


@pytest.mark.parametrize(
    "points",
    [
        [(0, 1), (1, 2), (2, 3)],  # straight
        [(0, 1), (1, 2.9), (2, 3)],  # turns at once
        [(0, 1), (1, 2), (2, 1)],  # level
        [(0, 1), (1, 2)],
        [(0, 1), (1, float("nan")), (2, 3)],
    ],
    ids=str,
)
def test_curves_without_an_elbow(points: list[tuple[float, float]]):
    assert elbow(points) is None
