import pytest
from optimizer_steps import one_parameter

from qkv.training.optimizers import Adagrad


def test_steps_match_a_computation_by_hand():
    # s = 0.5 + 4, then 0.5 + 4 + 9; the decay is apart from the gradient
    w = 1.0
    w = w * (1 - 0.1 * 0.2) - 0.1 * 2.0 / 4.5**0.5
    w = w * (1 - 0.1 * 0.2) + 0.1 * 3.0 / 13.5**0.5
    spec = Adagrad(lr=0.1, weight_decay=0.2, accumulator=0.5)
    assert one_parameter(spec, [[1.0]], [[[2.0]], [[-3.0]]]) == [pytest.approx([w])]
