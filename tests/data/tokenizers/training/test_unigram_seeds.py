"""Seeds of unigram training, beside substrings counted one by one."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.tokenizers.training.unigram_seeds import LONGEST, UnigramCorpus, corpus_lattice, piece_lattice, seeds

counted = st.dictionaries(st.text("abc", min_size=1, max_size=7), st.integers(1, 5), min_size=1, max_size=8)


def substrings(words: list[str], longest: int) -> dict[str, int]:
    """The characters, and the repeated substrings that do not always continue with the same character."""
    every = Counter(w[i : i + n] for w in words for n in range(1, longest + 1) for i in range(len(w) - n + 1))
    return {
        text: count
        for text, count in every.items()
        if len(text) == 1 or (count > 1 and (len(text) == longest or all(every[text + c] < count for c in "abc")))
    }


@given(counted, st.integers(1, 5))
def test_seeds_are_the_repeated_substrings_with_their_occurrences(counts: dict[str, int], longest: int) -> None:
    corpus = UnigramCorpus.of(counts)
    found = {
        text: count
        for each in seeds(corpus, longest)
        for text, count in zip(
            corpus.texts(each.first, np.full(len(each.first), each.length)), each.counts.tolist(), strict=True
        )
    }
    assert found == substrings(list(counts), longest)


@given(counted)
def test_lattices_hold_every_occurrence_in_words_and_in_pieces(counts: dict[str, int]) -> None:
    corpus = UnigramCorpus.of(counts)
    found = seeds(corpus, 4)
    lengths = np.repeat([each.length for each in found], [len(each.counts) for each in found])
    places = np.concatenate([each.first for each in found])
    pieces = corpus.texts(places, lengths)
    words = sorted(counts, key=lambda word: (-len(word), word))
    lattice = corpus_lattice(corpus, found)

    def edges(lattice, words):
        w, offset = lattice.places(lattice.start)
        assert (lattice.places(lattice.end)[1] == offset + lengths[lattice.piece]).all()
        return sorted((words[a], b, pieces[p]) for a, b, p in zip(w, offset, lattice.piece, strict=True))

    def expected(words, whole=True):
        return sorted(
            (w, i, p)
            for w in words
            for p in pieces
            for i in range(len(w) - len(p) + 1)
            if w[i:].startswith(p) and (whole or p != w)
        )

    assert edges(lattice, words) == expected(words)
    own, owner = piece_lattice(corpus, lattice, places, lengths)
    assert sorted(owner.tolist()) == [i for i, piece in enumerate(pieces) if len(piece) > 1]
    if len(owner):
        named = [pieces[i] for i in owner.tolist()]
        assert edges(own, named) == expected(named, whole=False)


def test_long_words_are_read_in_parts() -> None:
    corpus = UnigramCorpus.of({"x" * (2 * LONGEST + 3): 5, "y": 1})
    assert corpus.lengths.tolist() == [LONGEST, 3, 1] and corpus.weights.tolist() == [10, 5, 1]
