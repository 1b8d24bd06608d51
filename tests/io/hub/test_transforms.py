"""Every transform and its inverse are the identity, bit for bit, and shapes are known without tensors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.io.hub.transforms import SAME, Grouped, Joined, Shaped, Stacked, TensorTransform, TransformChain, Transposed

sizes = st.integers(1, 4)


@st.composite
def fused(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], int]:
    """Shapes of q, k and v with K groups, and K; matrices or vectors."""
    groups, ratio, wide, columns = draw(sizes), draw(sizes), draw(sizes), draw(sizes)
    rest = (columns,) if draw(st.booleans()) else ()
    return [(groups * ratio * wide, *rest), (groups * wide, *rest), (groups * wide, *rest)], groups


@st.composite
def cases(draw: st.DrawFn) -> tuple[TensorTransform, list[tuple[int, ...]]]:
    shapes, groups = draw(fused())
    matrix = (draw(sizes), draw(sizes))
    return draw(
        st.sampled_from(
            [
                (SAME, [matrix, (3,)]),
                (Transposed(), [matrix, (3,)]),
                (Joined(), shapes),
                (Joined(axis=1), [(2, draw(sizes)), (2, draw(sizes))]),
                (Grouped(groups), shapes),
                (Stacked(), [(draw(sizes), *matrix)]),
                (Shaped((1, -1)), [(draw(sizes),)]),
                (TransformChain(Transposed(), Joined()), shapes),
                (TransformChain(Stacked(), Transposed(), Joined(axis=1)), [(3, 2, 4), (3, 1, 4)]),
            ]
        )
    )


def numbered(shapes: list[tuple[int, ...]]) -> list[torch.Tensor]:
    """Tensors of which no two elements are alike, so any that moves is noticed."""
    made, at = [], 0
    for shape in shapes:
        n = int(torch.tensor(shape).prod())
        made.append(torch.arange(at, at + n, dtype=torch.float32).reshape(shape))
        at += n
    return made


@given(cases())
@settings(deadline=None, max_examples=200)
def test_there_and_back_is_the_identity(case: tuple[TensorTransform, list[tuple[int, ...]]]) -> None:
    how, shapes = case
    ours = numbered(shapes)
    theirs = how.to_theirs(ours)
    assert [tuple(t.shape) for t in theirs] == how.shapes(shapes)
    assert sorted(torch.cat([t.flatten() for t in theirs]).tolist()) == list(range(sum(t.numel() for t in ours)))
    for before, after in zip(ours, how.to_ours(theirs, shapes), strict=True):
        assert torch.equal(before, after)
    again = how.to_theirs(how.to_ours(theirs, shapes))
    assert all(torch.equal(a, b) for a, b in zip(theirs, again, strict=True))


def test_rows_of_grouped_queries_stand_before_their_key_and_value() -> None:
    q, k, v = torch.arange(4.0)[:, None], torch.tensor([[10.0], [11.0]]), torch.tensor([[20.0], [21.0]])
    assert Grouped(2).to_theirs([q, k, v])[0].flatten().tolist() == [0, 1, 10, 20, 2, 3, 11, 21]


def test_conv1d_keeps_its_bias() -> None:
    bias = torch.arange(3.0)
    assert torch.equal(Transposed().to_ours([bias], [(3,)])[0], bias)


@pytest.mark.parametrize("how", [Joined(), Grouped(2)])
def test_vectors_are_fused_as_matrices_are(how: TensorTransform) -> None:
    assert how.shapes([(4,), (2,), (2,)]) == [(8,)]
