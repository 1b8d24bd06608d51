"""Which layers and heads are drawn."""

from __future__ import annotations

from qkv.look.head_grid import chosen_heads, rounded


def test_all_are_drawn_if_they_are_few() -> None:
    assert chosen_heads([{"weights": [0, 0]}, {"weights": [0, 0, 0]}]) == ([0, 1], [0, 1, 2], "")


def test_of_many_the_first_and_the_last_layer_are_drawn() -> None:
    layers, heads, left_out = chosen_heads([{"weights": [0] * 12}] * 24)
    assert len(layers) == 8 and (layers[0], layers[-1]) == (0, 23) and layers == sorted(set(layers))
    assert heads == list(range(8)) and left_out == "8 of 24 layers and 8 of 12 heads"


def test_nested_numbers_are_rounded() -> None:
    assert rounded([[0.123456, 1.0], 0.00001]) == [[0.1235, 1.0], 0.0]
