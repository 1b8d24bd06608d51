"""Recurrent layers: one step of a loop, whole sequences in fused kernels, and padding, all the same numbers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.core.layout import Layout
from qkv.nn.kv_cache.recurrent import RecurrentState
from qkv.nn.layers.rnn import PaddedRows, Recurrence, rnn_flops, rnn_parameters

CELLS = ("rnn", "gru", "lstm")


def made(cell: str, layers: int = 1, directions: int = 1) -> Recurrence:
    torch.manual_seed(0)
    return Recurrence(cell, 3, 4, layers, directions).double().eval()  # type: ignore[arg-type]


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
def test_steps_are_the_fused_kernels(cell: str, layers: int) -> None:
    r, x = made(cell, layers), torch.randn(2, 5, 3, dtype=torch.float64)
    wanted, last = r(x)
    step = r.by_steps()
    states = [tuple(torch.zeros(2, 4, dtype=torch.float64) for _ in range(1 + (cell == "lstm")))] * layers
    for t, gates in enumerate(r.read(x).unbind(1)):
        states = step(gates, states)
        torch.testing.assert_close(states[-1][0], wanted[:, t])
    for i, tensor in enumerate(last):
        torch.testing.assert_close(torch.stack([s[i] for s in states]), tensor)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), side=st.sampled_from(["left", "right", "holes"]))
@settings(max_examples=10, deadline=None)
def test_padding_is_not_read(cell: str, directions: int, lengths: list[int], side: str) -> None:
    r = made(cell, 2, directions)
    width = max(lengths) + 2
    mask = torch.zeros(len(lengths), width, dtype=torch.bool)
    for i, n in enumerate(lengths):
        mask[
            i, torch.randperm(width)[:n] if side == "holes" else slice(0, n) if side == "right" else slice(-n, None)
        ] = True
    x = torch.randn(len(lengths), width, 3, dtype=torch.float64)
    rows = PaddedRows.of(Layout.from_mask(mask), len(lengths))
    assert rows is not None
    for finals in (True, False):
        out, last = r(rows.gather(x), rows, finals=finals)
        out = rows.spread(out)
        for i in range(len(lengths)):
            wanted, wanted_last = r(x[i, mask[i]][None])
            torch.testing.assert_close(out[i, mask[i]], wanted[0])
            if finals:
                torch.testing.assert_close([t[:, i] for t in last], [t[:, 0] for t in wanted_last])


def test_rows_that_are_packed() -> None:
    with pytest.raises(ValueError, match=r"one sequence a row.*batching\.packing"):
        PaddedRows.of(Layout.packed([[2, 3]]), 1)
    assert PaddedRows.of(Layout.full(4), 2) is None


@pytest.mark.parametrize("cell", CELLS)
def test_parameters_are_counted(cell: str) -> None:
    for layers, directions in ((1, 1), (3, 2)):
        r = made(cell, layers, directions)
        assert rnn_parameters(cell, 3, 4, layers, directions) == sum(p.numel() for p in r.parameters())  # type: ignore[arg-type]
        matrices = sum(p.numel() for p in r.parameters() if p.ndim == 2)
        assert rnn_flops(cell, 3, 4, layers, directions) == 2 * matrices  # type: ignore[arg-type]


def test_a_state_goes_with_its_row_and_never_back() -> None:
    state = RecurrentState()
    state.values = {"h": torch.arange(6.0).view(1, 3, 2)}
    state.reorder(torch.tensor([2, 0, 0]))
    assert state.values["h"][0, :, 0].tolist() == [4, 0, 0] and state.nbytes == 24
    state.check_rewind(0)
    with pytest.raises(ValueError, match="can't rewind 2"):
        state.check_rewind(2)
