"""Segmentations of words, beside an enumeration of all of them."""

from __future__ import annotations

from itertools import product
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.tokenizers.training.unigram_lattice import CorpusLattice

PIECES = ["a", "b", "aa", "ab", "aba", "bab"]
LENGTHS = np.array([len(piece) for piece in PIECES])


def lattice(words: list[str]) -> CorpusLattice:
    """Of words by falling length."""
    edges = []
    for length in (1, 2, 3):
        here = [
            (w, offset, PIECES.index(word[offset : offset + length]))
            for w, word in enumerate(words)
            for offset in range(len(word) - length + 1)
            if word[offset : offset + length] in PIECES
        ]
        w, offset, piece = np.array(here, np.int64).reshape(-1, 3).T
        edges.append((w, offset, length, piece))
    return CorpusLattice.of(np.array([len(word) for word in words]), edges)


def segmentations(word: str) -> list[list[int]]:
    if not word:
        return [[]]
    return [[i, *rest] for i, p in enumerate(PIECES) if word.startswith(p) for rest in segmentations(word[len(p) :])]


words_of_ab = st.lists(st.text("ab", min_size=1, max_size=8), min_size=1, max_size=5).map(
    lambda words: sorted(words, key=len, reverse=True)
)
probabilities = st.lists(st.floats(0.01, 1.0), min_size=len(PIECES), max_size=len(PIECES)).map(np.array)


@given(words_of_ab, probabilities)
def test_expected_counts_match_all_segmentations(words: list[str], p: np.ndarray) -> None:
    weights = np.arange(1.0, len(words) + 1)
    counts, likelihood = lattice(words).expected_counts(np.log(p), LENGTHS, weights)
    expected, sum_of_logs = np.zeros(len(PIECES)), 0.0
    for word, weight in zip(words, weights, strict=True):
        every = [(s, exp(sum(log(p[i]) for i in s))) for s in segmentations(word)]
        total = sum(probability for _, probability in every)
        sum_of_logs += weight * log(total)
        for s, probability in every:
            np.add.at(expected, s, weight * probability / total)
    np.testing.assert_allclose(counts, expected, rtol=1e-9, atol=1e-12)
    assert likelihood == pytest.approx(sum_of_logs, rel=1e-9)


@given(words_of_ab, probabilities)
def test_the_most_probable_segmentation_is_the_best_of_all(words: list[str], p: np.ndarray) -> None:
    scores, of_word, pieces = lattice(words).most_probable(np.log(p))
    for w, word in enumerate(words):
        found = pieces[of_word == w][::-1].tolist()
        assert "".join(PIECES[i] for i in found) == word
        assert scores[w] == pytest.approx(max(sum(log(p[i]) for i in s) for s in segmentations(word)))
        assert scores[w] == pytest.approx(sum(log(p[i]) for i in found))


def test_a_word_of_32_rare_characters_does_not_underflow() -> None:
    rare, common = 1e-9, 0.1
    logs = np.log([rare, common, common, common, common, common])
    counts, likelihood = lattice(["a" * 32]).expected_counts(np.where(LENGTHS > 1, -np.inf, logs), LENGTHS, np.ones(1))
    assert counts[0] == pytest.approx(32) and likelihood == pytest.approx(32 * log(rare))


def test_edges_of_dropped_pieces_and_words_go() -> None:
    words = ["abab", "aba", "ab"]
    number = np.array([0, 1, -1, 2, 3, -1])
    kept = lattice(words).keep(number, np.array([True, False, True]))
    assert set(kept.piece.tolist()) == {0, 1, 2, 3}
    scores, of_word, _ = kept.most_probable(np.log([0.1, 0.1, 0.5, 0.2]))
    assert set(of_word.tolist()) == {0, 2} and scores[1] == -np.inf
    assert scores[0] == pytest.approx(2 * log(0.5))


def test_every_string_over_the_alphabet_has_a_segmentation() -> None:
    words = sorted(("".join(s) for n in (1, 2, 3, 4) for s in product("ab", repeat=n)), key=len, reverse=True)
    assert np.isfinite(lattice(words).most_probable(np.log(np.full(len(PIECES), 0.1)))[0]).all()


def test_no_words_have_no_segmentations() -> None:
    none = CorpusLattice.of(np.zeros(0, np.int64), [])
    scores, words, pieces = none.most_probable(np.log(np.full(len(PIECES), 0.1)))
    assert len(scores) == len(words) == len(pieces) == 0
