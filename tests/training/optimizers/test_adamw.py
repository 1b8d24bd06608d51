import pytest
from optimizer_steps import one_parameter
from train_stand_in import Tiny

from qkv.training.optimizers import AdamW


def test_steps_match_a_computation_by_hand():
    # at the first step m̂ = g and v̂ = g², so the update is lr · sign(g), after the decay
    w = one_parameter(AdamW(lr=0.1, weight_decay=0.5), [[1.0, 1.0]], [[[3.0, -4.0]]])
    assert w == [pytest.approx([0.95 - 0.1, 0.95 + 0.1])]


def test_its_state_is_there_before_the_first_step():
    model = Tiny()
    optimizer = AdamW().build(model)
    assert set(optimizer.state) == set(model.parameters())
    assert all(set(state) == {"step", "exp_avg", "exp_avg_sq"} for state in optimizer.state.values())
