"""WordPiece by likelihood: against the formula written out, and against the library's trainer, which merges by frequency."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from qkv.data.tokenizers.training.bpe import bpe_steps
from qkv.data.tokenizers.training.pair_merges import MergeStep
from qkv.data.tokenizers.training.wordpiece import pieces_of, train_wordpiece

# `t ##h` is the most frequent pair; `q ##u` is rarer, but q and u are never seen apart.
DIFFERENT = {"th": 6, "ta": 5, "oh": 5, "qu": 4}

made_words = st.dictionaries(st.text("abcde", min_size=1, max_size=8), st.integers(1, 9), min_size=1, max_size=25)


def test_first_merge_is_likelihoods_where_the_library_takes_frequencys() -> None:
    ours = train_wordpiece(DIFFERENT, 100)
    raw = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    texts = [" ".join([word] * count) for word, count in DIFFERENT.items()]
    alphabet = {"a", "h", "o", "q", "t", "u", "##a", "##h", "##u"}
    raw.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=10, special_tokens=[], show_progress=False))
    assert set(raw.get_vocab()) - alphabet == {"th"}
    assert next(piece for piece in ours if piece not in alphabet) == "qu"


def plain(counts: dict[str, int], size: int, min_frequency: int) -> list[str]:
    """The definition, counted anew for every merge."""
    cut = {word: pieces_of(word) for word in counts}
    vocabulary = dict.fromkeys([*sorted(set("".join(counts))), *sorted({p for c in cut.values() for p in c[1:]})])
    while len(vocabulary) < size:
        symbols, pairs = Counter[str](), Counter[tuple[str, str]]()
        for word, count in counts.items():
            for symbol in cut[word]:
                symbols[symbol] += count
            for pair in pairwise(cut[word]):
                pairs[pair] += count
        frequent = [pair for pair, count in pairs.items() if count >= min_frequency]
        if not frequent:
            break
        a, b = min(frequent, key=lambda p: (-pairs[p] / (symbols[p[0]] * symbols[p[1]]), -pairs[p], p))
        vocabulary[a + b[2:]] = None
        for word, old in cut.items():
            new: list[str] = []
            for symbol in old:
                if new and (new[-1], symbol) == (a, b):
                    new[-1] = a + b[2:]
                else:
                    new.append(symbol)
            cut[word] = new
    return list(vocabulary)


@given(made_words, st.integers(1, 60), st.integers(1, 3))
def test_training_follows_the_definition(counts: dict[str, int], size: int, min_frequency: int) -> None:
    assert train_wordpiece(counts, size, min_frequency=min_frequency) == plain(counts, size, min_frequency)


@given(made_words)
def test_order_of_the_words_makes_no_difference(counts: dict[str, int]) -> None:
    backwards = dict(reversed(counts.items()))
    assert train_wordpiece(counts, 80) == train_wordpiece(backwards, 80)


def test_characters_that_were_cut_from_the_alphabet_leave_with_their_words() -> None:
    pieces = train_wordpiece({"aab": 5, "abx": 1}, 100, limit_alphabet=2)
    assert pieces[:2] == ["a", "b"] and "aab" in pieces and not any("x" in piece for piece in pieces)


def test_trace_accounts_for_every_merge() -> None:
    steps: list[MergeStep] = []
    pieces = train_wordpiece({"cats": 1, "mats": 1, "mate": 1, "ate": 1}, 100, min_frequency=1, trace=steps.append)
    assert pieces[-len(steps) :] == [step.token for step in steps]
    first = steps[0]  # freq(m ##a) = 2, freq(m) = 2, freq(##a) = 3
    assert (first.token, first.count, first.symbols) == ("ma", 2, 13)
    assert first.score == pytest.approx(2 / (2 * 3))
    assert steps[-1].words == (("cats",), ("mats",), ("mate",), ("ate",))


# -- the readable byte-pair encoding that --trace shows ------------------------------------------------------------------


@given(made_words, st.integers(0, 30), st.integers(1, 3))
def test_bpe_steps_are_the_librarys_merges(counts: dict[str, int], merges: int, min_frequency: int) -> None:
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    size = len(set("".join(counts))) + merges
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=min_frequency, show_progress=False)
    raw.train_from_iterator((" ".join([word] * count) for word, count in counts.items()), trainer)
    steps = list(bpe_steps(counts, merges, min_frequency))
    state = raw.model.__getstate__().decode()
    expected = Tokenizer(models.BPE({s: i for i, s in enumerate(vocabulary(counts, steps))}, pairs(steps)))
    assert state == expected.model.__getstate__().decode()


def vocabulary(counts: dict[str, int], steps: list[MergeStep]) -> list[str]:
    return list(dict.fromkeys([*sorted(set("".join(counts))), *(step.token for step in steps)]))


def pairs(steps: list[MergeStep]) -> list[tuple[str, str]]:
    return [(step.left, step.right) for step in steps]


def test_the_textbook_corpus_has_its_merges() -> None:
    steps = list(bpe_steps({"cats": 1, "mats": 1, "mate": 1, "ate": 1}, 3))
    assert [(s.token, s.count, s.symbols) for s in steps] == [("at", 4, 11), ("mat", 2, 9), ("cat", 1, 8)]
    assert steps[0].words == (("c", "at", "s"), ("m", "at", "s"), ("m", "at", "e"), ("at", "e"))
