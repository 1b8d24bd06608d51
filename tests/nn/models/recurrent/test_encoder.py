"""The recurrent encoder against PyTorch's GRU, each row alone."""

from __future__ import annotations

import pytest
import torch

import qkv
from qkv.nn.models.recurrent.encoder import RecurrentEncoder


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("directions", "reverse"), [(1, False), (2, False), (1, True)])
def test_states_are_those_of_each_row_alone(directions: int, reverse: bool, side: str) -> None:
    encoder = RecurrentEncoder("gru", 3, 4, 2, directions, 0.0, reverse).double().eval()
    gru = torch.nn.GRU(3, 4, 2, batch_first=True, bidirectional=directions == 2).double()
    gru.load_state_dict(encoder.layers.rnn.state_dict())
    lengths, x = [5, 2, 4], torch.randn(3, 5, 3, dtype=torch.float64)
    with torch.no_grad():
        found = encoder(x, qkv.Layout.from_lengths(lengths, 5, side=side), True)
        assert found.final is not None and found.finals is not None
        for row, n in enumerate(lengths):
            own = slice(0, n) if side == "right" else slice(5 - n, 5)
            alone = x[row : row + 1, own]
            states, last = gru(alone.flip(1) if reverse else alone)
            torch.testing.assert_close(found.states[row, own], states.flip(1)[0] if reverse else states[0])
            torch.testing.assert_close(found.final[row], last[-directions:, 0])
            torch.testing.assert_close(found.finals[0][:, row], last[:, 0])


def test_a_row_without_tokens_is_named() -> None:
    encoder = RecurrentEncoder("gru", 3, 4, 1, 1, 0.0, False)
    with pytest.raises(ValueError, match="source 1 has no tokens"):
        encoder(torch.zeros(2, 3, 3), qkv.Layout.from_lengths([3, 0], 3), False)
    with pytest.raises(ValueError, match="source 0 has no tokens"):
        encoder(torch.zeros(2, 0, 3), qkv.Layout.full(0), False)
