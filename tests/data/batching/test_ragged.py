from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.batching.ragged import Ragged

SEQUENCES = st.lists(st.lists(st.integers(0, 99), max_size=6), max_size=12)


def lists(ragged: Ragged) -> list[list[int]]:
    return [sequence.tolist() for sequence in ragged]


@given(SEQUENCES, SEQUENCES)
def test_it_holds_what_it_is_made_of(some: list[list[int]], more: list[list[int]]) -> None:
    assert lists(Ragged.of(some)) == some and len(Ragged.of(some)) == len(some)
    assert lists(Ragged.join([Ragged.of(some), Ragged.of(more)])) == some + more


@given(SEQUENCES, st.integers(0, 7), st.integers(0, 7), st.data())
def test_parts_are_slices_of_each_row(sequences: list[list[int]], skip: int, leave: int, data: st.DataObject) -> None:
    ragged = Ragged.of(sequences)
    assert lists(ragged.upto(skip)) == [s[:skip] for s in sequences]
    assert lists(ragged.part(skip, leave).compact()) == [s[skip : max(len(s) - leave, skip)] for s in sequences]
    order = data.draw(st.permutations(range(len(sequences))))
    taken = ragged.take(np.array(order, np.int64))
    assert lists(taken) == lists(taken.compact()) == [sequences[i] for i in order]


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 99), max_size=5), st.integers(-1, 9), st.integers(-1, 9)), max_size=9)
)
def test_a_frame_stands_around_each_row(items: list[tuple[list[int], int, int]]) -> None:
    """Also if the sequences lie apart: every other one of twice as many."""
    doubled = Ragged.of([s for s, _, _ in items for s in (s, [7, 7])])
    ragged = doubled.take(np.arange(0, 2 * len(items), 2))
    before, after = (np.array([item[k] for item in items], np.int32) for k in (1, 2))
    expected = [[b] * (b >= 0) + s + [a] * (a >= 0) for s, b, a in items]
    assert lists(ragged.framed(before, after)) == expected


@given(SEQUENCES)
def test_padding_fills_rows_to_the_longest(sequences: list[list[int]]) -> None:
    width = max(map(len, sequences), default=0)
    padded = Ragged.of(sequences).padded(-5)
    assert padded.tolist() == [s + [-5] * (width - len(s)) for s in sequences]
    assert padded.dtype == np.int64
