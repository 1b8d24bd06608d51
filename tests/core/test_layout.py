"""Layouts: the makers, and that what they tell the host is true of their tensors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils import _pytree

from qkv.core.layout import Layout, Role

masks = st.integers(1, 6).flatmap(
    lambda width: st.lists(st.lists(st.booleans(), min_size=width, max_size=width), min_size=1, max_size=4)
)
packings = st.lists(st.lists(st.integers(1, 4), max_size=3), min_size=1, max_size=3)


def assert_facts_true(layout: Layout) -> None:
    """Every fact that the host is told, against the tensors."""
    rows, width = layout.shape
    position, valid = layout.positions[..., 0], layout.valid
    segments = torch.zeros(rows, width) if layout.segments is None else layout.segments
    index = torch.arange(width)
    for b in range(rows):
        real = index[valid[b]]
        if layout.padding != "mixed":
            first = {"none": 0, "right": 0, "left": width - len(real)}[layout.padding]
            assert real.tolist() == list(range(first, first + len(real)))
        if layout.padding == "none":
            assert len(real) == width
        if layout.one_segment:
            assert len(set(segments[b, real].tolist())) <= 1
        if layout.sequential:
            same = segments[b, real][:, None] == segments[b, real][None, :]
            apart = position[b, real][:, None] - position[b, real][None, :]
            assert torch.equal(apart[same], (real[:, None] - real[None, :])[same])
        if layout.start is not None and width and valid[b, 0]:
            assert int(position[b, 0]) == layout.start


@given(masks)
def test_from_mask_keeps_the_mask_and_tells_the_truth(rows: list[list[bool]]) -> None:
    mask = torch.tensor(rows)
    for given_mask in (mask, mask.long(), mask.float()):
        layout = Layout.from_mask(given_mask)
        assert torch.equal(layout.valid.expand(mask.shape), mask)
        assert_facts_true(layout)
        for row in range(len(rows)):  # real tokens are numbered from 0, wherever padding stands
            real = layout.positions.expand(len(rows), -1, 1)[row, mask[row], 0]
            assert real.tolist() == list(range(int(mask[row].sum())))


@pytest.mark.parametrize(
    "rows, padding",
    [
        ([[1, 1, 1], [1, 1, 1]], "none"),
        ([[1, 1, 0], [1, 0, 0]], "right"),
        ([[0, 1, 1], [1, 1, 1]], "left"),
        ([[0, 1, 1], [1, 1, 0]], "mixed"),
        ([[1, 0, 1], [1, 1, 1]], "mixed"),
    ],
)
def test_from_mask_recognizes_where_padding_stands(rows: list[list[int]], padding: str) -> None:
    assert Layout.from_mask(torch.tensor(rows)).padding == padding


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.sampled_from(["left", "right"]), st.integers(0, 2))
def test_from_lengths_gives_each_row_its_tokens(lengths: list[int], side: str, spare: int) -> None:
    width = max(lengths) + spare
    layout = Layout.from_lengths(lengths, width, side)  # type: ignore[arg-type]
    assert_facts_true(layout)
    assert layout.valid.expand(len(lengths), width).sum(1).tolist() == lengths


@given(packings, st.integers(0, 2))
def test_packed_numbers_the_tokens_of_each_segment(rows: list[list[int]], spare: int) -> None:
    layout = Layout.packed(rows, max(map(sum, rows)) + spare)
    assert_facts_true(layout)
    for b, lengths in enumerate(rows):
        real = layout.valid[b]
        assert layout.positions[b, real, 0].tolist() == [i for n in lengths for i in range(n)]
        assert layout.segments is not None
        assert layout.segments[b, real].tolist() == [s for s, n in enumerate(lengths) for _ in range(n)]


@given(masks, st.data())
def test_parts_of_a_layout_tell_the_truth(rows: list[list[bool]], data: st.DataObject) -> None:
    layout = Layout.from_mask(torch.tensor(rows))
    width = layout.shape[1]
    start = data.draw(st.integers(0, width - 1))
    stop = data.draw(st.integers(start + 1, width))
    part = layout.slice(start, stop)
    assert_facts_true(part)
    assert torch.equal(part.positions, layout.positions[:, start:stop])
    chosen = torch.tensor(data.draw(st.lists(st.integers(0, layout.shape[0] - 1), min_size=1, max_size=4)))
    picked = layout.select(chosen)
    assert_facts_true(picked)
    if layout.shape[0] > 1:
        assert torch.equal(picked.positions, layout.positions[chosen])


def test_views_broadcast_to_pairs() -> None:
    layout = Layout.packed([[2, 1], [3]])
    q, k = layout.queries(), layout.keys()
    assert (q.position - k.position).shape == (2, 3, 3)
    assert (q.segment == k.segment)[0].tolist() == [[True, True, False], [True, True, False], [False, False, True]]


def test_full_counts_from_its_start() -> None:
    layout = Layout.full(3, start=5)
    assert layout.positions[0, :, 0].tolist() == [5, 6, 7] and layout.shape == (1, 3)
    assert_facts_true(layout)


def leaves_of(layout: Layout) -> list[Tensor | None]:
    return [layout.positions, layout.segments, layout.roles]


@pytest.mark.parametrize(
    "layout",
    [
        Layout.full(3, start=2),
        Layout.from_lengths([1, 3], side="left"),
        Layout.packed([[2, 1], [1]]),
        Layout.full(2).with_roles(torch.tensor([[Role.CLASS, Role.PREFIX | Role.GLOBAL]])),
    ],
)
def test_pytree_round_trip_keeps_tensors_and_facts(layout: Layout) -> None:
    leaves, tree = _pytree.tree_flatten(layout)
    again = _pytree.tree_unflatten(leaves, tree)
    moved = _pytree.tree_map_only(Tensor, torch.clone, {"layout": layout})["layout"]
    for other in (again, moved, layout.to("cpu")):
        for a, b in zip(leaves_of(layout), leaves_of(other), strict=True):
            assert (a is None and b is None) or torch.equal(a, b)  # type: ignore[arg-type]
        for fact in ("padding", "one_segment", "sequential", "start", "lengths"):
            assert getattr(other, fact) == getattr(layout, fact)


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: Layout.from_lengths([3, 5], width=4), r"lengths \[3, 5\] don't fit a width of 4"),
        (lambda: Layout.from_lengths([-1]), r"lengths \[-1\] don't fit"),
        (lambda: Layout.from_mask(torch.ones(2, 1, 3)), r"\(batch, length\), not \(2, 1, 3\)"),
        (lambda: Layout.from_mask(torch.tensor([[0.0, float("-inf")]])), "1 = real token.*not additive"),
        (lambda: Layout.packed([[2, 3]], width=4), "row 0 holds 5 tokens, more than its width of 4"),
    ],
)
def test_what_no_layout_can_hold(make: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()  # type: ignore[operator]


def test_rows_are_selected_where_positions_are_shared() -> None:
    """Positions of one row stand beside roles of many, as in prefix language modeling."""
    roles = torch.tensor([[4, 4, 0], [4, 0, 0], [4, 4, 4]])
    layout = Layout.full(3).with_roles(roles).select(torch.tensor([2, 0]))
    assert layout.positions.shape == (1, 3, 1) and layout.roles is not None and layout.roles.equal(roles[[2, 0]])
