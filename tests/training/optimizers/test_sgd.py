import pytest
from optimizer_steps import one_parameter
from train_stand_in import Tiny

from qkv.training.optimizers import SGD


def test_momentum_and_decoupled_decay_by_hand():
    # v1 = g, w1 = w (1 − lr λ) − lr v1; v2 = 0.5 v1 + g, w2 = w1 (1 − lr λ) − lr v2
    w, g = 1.0, 2.0
    w = w * 0.95 - 0.1 * g
    w = w * 0.95 - 0.1 * (0.5 * g + g)
    spec = SGD(lr=0.1, momentum=0.5, weight_decay=0.5)
    assert one_parameter(spec, [[1.0, 1.0]], [[[2.0, 2.0]]] * 2) == [pytest.approx([w, w])]
    nesterov = SGD(lr=0.1, momentum=0.5, nesterov=True)
    assert one_parameter(nesterov, [[1.0]], [[[2.0]]]) == [pytest.approx([1 - 0.1 * (2.0 + 0.5 * 2.0)])]


def test_nesterov_needs_momentum():
    with pytest.raises(ValueError, match="momentum above 0"):
        SGD(momentum=0.0, nesterov=True).build(Tiny())
