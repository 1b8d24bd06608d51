import pytest
from optimizer_steps import one_parameter

from qkv.training.optimizers import Lion


def test_steps_match_a_computation_by_hand():
    # m = 0 at first, so the first step goes by sign(g); then m = 0.5 g₁ = 2, and 0.8 · 2 + 0.2 · (−5) > 0 continues
    w = 1.0 * 0.95 - 0.1
    w = w * 0.95 - 0.1
    spec = Lion(lr=0.1, weight_decay=0.5, betas=(0.8, 0.5))
    assert one_parameter(spec, [[1.0]], [[[4.0]], [[-5.0]]]) == [pytest.approx([w])]
    # after it m = 0.5 · 2 − 0.5 · 5 = −1.5, and 0.8 · (−1.5) + 0.2 · 1 < 0
    w = w * 0.95 + 0.1
    assert one_parameter(spec, [[1.0]], [[[4.0]], [[-5.0]], [[1.0]]]) == [pytest.approx([w])]


def test_nothing_moves_where_nothing_ever_pulled():
    assert one_parameter(Lion(weight_decay=0.0), [[1.0, 2.0]], [[[0.0, 0.0]]] * 3) == [[1.0, 2.0]]
