"""Static vectors: neighbors and analogies follow the formula, and files of all three forms give them back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.vectors.word_vectors import Vectors


def made(**rows: list[float]) -> Vectors:
    return Vectors(tuple(rows), np.array(list(rows.values()), np.float32))


ROYAL = made(man=[1, 0, 0], woman=[1, 1, 0], king=[1, 0, 2], queen=[1, 1, 2], apple=[-3, 0, 0.5])


def test_neighbors_are_ordered_by_cosine_and_leave_out_the_word() -> None:
    found = ROYAL.nearest("king", 9)
    assert [word for word, _ in found] == ["queen", "man", "woman", "apple"]
    for word, cosine in found:
        a, b = ROYAL["king"], ROYAL[word]
        assert cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-6)
        assert cosine == pytest.approx(ROYAL.similarity("king", word), abs=1e-6)
    assert ROYAL.nearest("king", 1) == found[:1]


def test_man_is_to_king_as_woman_is_to_queen() -> None:
    assert ROYAL.analogy("man", "king", "woman")[0][0] == "queen"
    assert "king" not in dict(ROYAL.analogy("man", "king", "woman"))


@given(st.integers(2, 30), st.integers(1, 6), st.integers(0, 99), st.integers(1, 40))
def test_the_nearest_are_what_sorting_all_cosines_gives(words: int, width: int, seed: int, count: int) -> None:
    numbers = np.random.default_rng(seed).normal(size=(words, width)).astype(np.float32)
    vectors = Vectors(tuple(f"w{i}" for i in range(words)), numbers)
    cosines = sorted((vectors.similarity("w0", f"w{i}") for i in range(1, words)), reverse=True)
    found = vectors.nearest("w0", count)
    assert [cosine for _, cosine in found] == pytest.approx(cosines[:count], abs=1e-5)
    assert len({word for word, _ in found} | {"w0"}) == min(count, words - 1) + 1


def test_a_vector_of_zeros_is_near_nothing() -> None:
    found = made(a=[0, 0], b=[1, 0], c=[0, 1]).nearest("a")
    assert [cosine for _, cosine in found] == [0, 0]


@pytest.mark.parametrize(
    ("words", "array", "said"),
    [
        (("a",), np.zeros((2, 3)), "the array of 1 word needs a row for each .* its shape is \\(2, 3\\)"),
        ((), np.zeros((0, 3)), "the array of 0 words needs"),
        (("a", "b", "a"), np.zeros((3, 3)), "the word 'a' occurs twice"),
        (("a", "b"), np.array([[0], [np.nan]]), "the vector of 'b' holds a number that is not finite"),
    ],
)
def test_what_is_no_table_of_vectors_is_refused(words: tuple[str, ...], array: np.ndarray, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Vectors(words, array.astype(np.float32))


def test_an_unknown_word_is_told_with_those_spelled_like_it() -> None:
    with pytest.raises(ValueError, match="there is no vector for 'qeen'; did you mean 'queen'"):
        ROYAL.nearest("qeen")
    with pytest.raises(ValueError, match="1 or more, not 0"):
        ROYAL.nearest("king", 0)
