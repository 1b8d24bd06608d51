"""Buffers of slots: what is written stays, growth doubles, rows are selected."""

from __future__ import annotations

import torch

from qkv.nn.kv_cache.slots import put, select


def test_put_keeps_what_was_written_and_doubles() -> None:
    x = torch.randn(2, 3, 500, 4)
    buffer, sizes = None, set()
    for at in range(0, 500, 5):
        buffer = put(buffer, x[:, :, at : at + 5], at)
        sizes.add(buffer.shape[2])
    assert buffer is not None and torch.equal(buffer[:, :, :500], x)
    assert len(sizes) < 8


def test_a_new_buffer_has_room_or_an_exact_size() -> None:
    x = torch.randn(1, 1, 3, 2)
    assert put(None, x, 0, room=200).shape[2] == 200
    assert put(None, x, 0, most=7).shape[2] == 7


def test_select_takes_rows_of_the_used_slots() -> None:
    buffer = torch.randn(3, 2, 8, 4)
    rows = select(buffer, torch.tensor([2, 0, 2]), 5)
    assert rows.shape == (3, 2, 8, 4) and torch.equal(rows[:, :, :5], buffer[[2, 0, 2], :, :5])
