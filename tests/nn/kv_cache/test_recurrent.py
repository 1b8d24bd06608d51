"""The state of a recurrent decoder: rows are second, and nothing is rewound."""

from __future__ import annotations

import pytest
import torch

from qkv.nn.kv_cache.recurrent import RecurrentState


def test_reorder_save_and_restore() -> None:
    state, other = RecurrentState(), RecurrentState()
    state.values = {"h": torch.randn(2, 3, 4)}
    before = state.values["h"].clone()
    state.reorder(torch.tensor([2, 0]))
    assert torch.equal(state.values["h"], before[:, [2, 0]])
    other.restore(state.tensors())
    assert torch.equal(other.values["h"], state.values["h"])
    assert other.nbytes == 2 * 2 * 4 * 4 == sum(other.parts.values())


def test_a_recurrent_state_can_not_be_rewound() -> None:
    RecurrentState().check_rewind(0)
    with pytest.raises(ValueError, match="can't rewind 1 tokens"):
        RecurrentState().check_rewind(1)
