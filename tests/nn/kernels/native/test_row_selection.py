"""Rows of a buffer replaced in place by others of it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qkv.nn.kernels.native import row_selection

pytestmark = pytest.mark.skipif(
    not row_selection.serves(torch.zeros(1, 1, 1, 1), torch.zeros(1, dtype=torch.long)),
    reason="needs a C++ compiler or prebuilt kernels",
)


@given(
    rows=st.lists(st.integers(0, 8), min_size=9, max_size=9),
    heads=st.integers(1, 3),
    slots=st.integers(1, 700),
    share=st.floats(0, 1),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int8]),
)
def test_every_row_becomes_the_one_it_names(rows, heads, slots, share, dtype):
    before = torch.randn(9, heads, slots, 24).mul(100).to(dtype)
    index, used, after = torch.tensor(rows), int(share * slots), before.clone()
    row_selection.select_rows(after, index, used)
    assert torch.equal(after[:, :, :used], before[index][:, :, :used])
    assert torch.equal(after[:, :, used:], before[:, :, used:])


@pytest.mark.parametrize("rows", [[0, 1], [0, 1, 3], [0, -1, 2]])
def test_other_rows_are_refused_and_nothing_changes(rows):
    before = torch.randn(3, 2, 4, 8)
    after = before.clone()
    with pytest.raises(IndexError, match="one of its rows for each"):
        row_selection.select_rows(after, torch.tensor(rows), 4)
    assert torch.equal(before, after)


def test_only_plain_contiguous_tensors_are_served():
    rows = torch.zeros(3, dtype=torch.long)
    assert row_selection.serves(torch.zeros(3, 2, 4, 8), rows)
    assert not row_selection.serves(torch.zeros(3, 4, 2, 8).transpose(1, 2), rows)
    assert not row_selection.serves(torch.zeros(3, 2, 4, 8, requires_grad=True), rows)
    assert not row_selection.serves(torch.zeros(3, 2, 4, 8), rows.int())
    assert not row_selection.serves(torch.zeros(3, 2, 4, 0), rows)


@pytest.mark.parametrize(
    ("buffer", "used"),
    [
        (torch.zeros(3, 2, 4, 0), 2),  # which has strides, but no memory
        (torch.zeros(3, 2, 4, 8), 5),
        (torch.zeros(3, 2, 4, 8), -1),
        (torch.zeros(1, 2, 4, 8).expand(3, -1, -1, -1), 4),  # all rows are one
    ],
)
def test_buffers_without_their_memory_are_refused(buffer, used):
    with pytest.raises(ValueError, match="takes a contiguous buffer"):
        row_selection.select_rows(buffer, torch.tensor([2, 0, 1]), used)
