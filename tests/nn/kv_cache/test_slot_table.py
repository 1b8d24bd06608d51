"""Slot tables: which token each slot of a ring holds."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qkv.core.layout import Layout
from qkv.nn.kv_cache.slot_table import SlotTable, SlotTables


@given(st.integers(1, 6), st.lists(st.integers(1, 8), min_size=1, max_size=6))
def test_token_i_is_in_slot_i_mod_size(size: int, steps: list[int]) -> None:
    table = SlotTable(size)
    for count in steps:
        table.admit(Layout.full(count, start=table.length))
    assert table.kept is not None
    for token in range(max(0, table.length - size), table.length):
        assert table.kept.positions[0, token % size, 0] == token


def test_layers_of_one_size_share_a_table() -> None:
    tables = SlotTables()
    assert tables[None] is tables[None] and tables[4] is not tables[None]


def test_a_full_ring_can_not_be_rewound() -> None:
    table = SlotTable(2)
    table.admit(Layout.full(3))
    table.check_rewind(0)
    with pytest.raises(ValueError, match="a window cache of 2 tokens has evicted"):
        table.check_rewind(1)
    assert torch.equal(table.next_positions(1), torch.tensor([[3]]))
