from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.data.batching.ragged import Ragged
from qkv.runs.tasks.pretraining.sentence_pairs import sentence_pairs

END = 0


def texts_of(sentences: list[list[int]]) -> Ragged:
    """Texts of sentences of such lengths; a token says its place, and each sentence ends with one below zero."""
    flat, lengths, at = [], [], 1
    for text in sentences:
        for n in text:
            flat += [*range(at, at + n - 1), -(at + n - 1)]
            at += n
        lengths.append(sum(text))
    return Ragged.runs(np.array(flat, np.int32), lengths)


TEXTS = st.lists(st.lists(st.integers(1, 30), min_size=0, max_size=12), min_size=1, max_size=8)


@settings(deadline=None)
@given(TEXTS, st.integers(6, 40), st.integers(0, 999))
def test_pairs_fit_and_follow_as_they_say(given_texts: list[list[int]], room: int, seed: int) -> None:
    texts = texts_of(given_texts)
    pairs = sentence_pairs(texts, texts.flat < 0, room, np.random.default_rng(seed))
    owner = {abs(int(token)): i for i, text in enumerate(texts) for token in text}
    assert (pairs.first.lengths > 0).all() and (pairs.second.lengths > 0).all()
    assert ((pairs.first.lengths + pairs.second.lengths) <= room).all()
    for a, b, follows in zip(pairs.first, pairs.second, pairs.follows, strict=True):
        first, second = np.abs(a).tolist(), np.abs(b).tolist()
        assert first == list(range(first[0], first[0] + len(first)))  # one stretch, of one text
        assert second == list(range(second[0], second[0] + len(second)))
        assert len({owner[t] for t in first}) == len({owner[t] for t in second}) == 1
        assert follows == (second[0] == first[-1] + 1 and owner[second[0]] == owner[first[0]])
        if not follows and len({i for i, text in enumerate(texts) if len(text)}) > 1:
            assert owner[second[0]] != owner[first[0]]
    alone = sum(len(text) == 1 and text[0] <= room // 2 for text in given_texts)
    assert pairs.lonely == alone


@settings(deadline=None)
@given(TEXTS, st.integers(6, 40), st.integers(0, 999))
def test_no_text_is_left_out(given_texts: list[list[int]], room: int, seed: int) -> None:
    texts = texts_of(given_texts)
    random = np.random.default_rng(seed)
    pairs = sentence_pairs(texts, texts.flat < 0, room, random)
    read = {abs(int(t)) for row, follows in zip(pairs.first, pairs.follows, strict=True) for t in row}
    begun = {int(np.abs(row[0])) for row in pairs.first}
    for text, sentences in zip(texts, given_texts, strict=True):
        if len(sentences) > 1:
            assert abs(int(text[0])) in read
    assert len(begun) >= 1 or all(len(text) <= 1 for text in given_texts)


def test_half_follow_and_lengths_tell_nothing() -> None:
    random = np.random.default_rng(0)
    texts = texts_of([random.integers(3, 20, 60).tolist() for _ in range(120)])
    pairs = sentence_pairs(texts, texts.flat < 0, 96, random)
    assert abs(pairs.follows.mean() - 0.5) < 0.05
    total = pairs.first.lengths + pairs.second.lengths
    real, made = total[pairs.follows], total[~pairs.follows]
    assert abs(real.mean() - made.mean()) < 1.5 and abs(real.std() - made.std()) < 2.5
    ends = [
        [int(row[-1]) < 0 for row in part]
        for part in (pairs.second.take(pairs.follows), pairs.second.take(~pairs.follows))
    ]
    assert abs(np.mean(ends[0]) - np.mean(ends[1])) < 0.03


def test_other_epochs_have_other_pairs() -> None:
    texts = texts_of([[5] * 80])
    one, two = (sentence_pairs(texts, texts.flat < 0, 60, np.random.default_rng(seed)) for seed in (1, 2))
    assert one.first.starts.tolist() != two.first.starts.tolist()


def test_a_text_with_one_sentence_is_counted() -> None:
    texts = texts_of([[5], [5, 6, 7], [4]])
    pairs = sentence_pairs(texts, texts.flat < 0, 60, np.random.default_rng(0))
    assert pairs.lonely == 2 and len(pairs.first) == 1
