"""Training of unigram models: likelihoods rise, sizes are kept, and other trainers are not better."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from qkv.data.tokenizers.training.unigram_seeds import UnigramCorpus
from qkv.data.tokenizers.training.unigram_training import UnigramModel, train


def corpus_words(number: int = 4000) -> dict[str, int]:
    """Words of a few stems and endings, with Zipf's frequencies."""
    draw = np.random.default_rng(0)
    syllables = ["".join(s) for s in draw.choice(list("abcdefghijklmno"), (60, 3))]
    endings = ["", "s", "ed", "ing", "ness", "able"]
    words = [
        "▁" + "".join(draw.choice(syllables, draw.integers(1, 4))) + endings[draw.integers(len(endings))]
        for _ in range(number)
    ]
    return dict(Counter(words[int(i)] for i in np.minimum(draw.zipf(1.3, 40_000), number) - 1))


def log_likelihood(counts: dict[str, int], pieces: list[tuple[str, float]]) -> float:
    """Mean over words of the log-probability of the best segmentation, by the library's encoder."""
    model, score = models.Unigram([("<unk>", 0.0), *pieces], 0, False), dict(pieces)
    total = sum(n * sum(score[token.value] for token in model.tokenize(word)) for word, n in counts.items())
    return total / sum(counts.values())


def library(counts: dict[str, int], size: int) -> list[tuple[str, float]]:
    """Pieces by the trainer of `tokenizers`."""
    raw = Tokenizer(models.Unigram())
    raw.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    trainer = trainers.UnigramTrainer(
        vocab_size=size + 1, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    raw.train_from_iterator((" ".join([word[1:]] * n).join(["▁", ""]) for word, n in counts.items()), trainer)
    return [tuple(item) for item in json.loads(raw.to_str())["model"]["vocab"][1:]]


def test_the_text_is_as_probable_as_under_the_librarys_model() -> None:
    counts = corpus_words()
    ours, theirs = train(counts, 300), library(counts, 300)
    assert len(ours) == 300
    assert log_likelihood(counts, ours) > log_likelihood(counts, theirs) - 0.05


def test_expectation_maximization_raises_the_likelihood() -> None:
    model = UnigramModel.of(UnigramCorpus.of(corpus_words(300)), 8)
    likelihoods = []
    for _ in range(4):
        weights = model.corpus.weights
        likelihoods.append(model.lattice.expected_counts(model.log_probabilities, model.lengths, weights)[1])
        model = model.maximized()
    assert likelihoods == sorted(likelihoods)


def test_pieces_of_frequent_parts_cost_least() -> None:
    model = UnigramModel.of(
        UnigramCorpus.of({"abq": 50, "abr": 50, "a": 20, "b": 20, "xyq": 50, "xyr": 50, "q": 9, "r": 9}), 2
    )
    model = model.maximized().maximized().without_rare().with_own()
    loss = dict(zip(model.corpus.texts(model.places, model.lengths), model.losses(), strict=True))
    assert all(loss[character] == np.inf for character in "abqrxy")
    assert 0 < loss["ab"] < loss["xy"] < np.inf


@given(st.dictionaries(st.text("abcd", min_size=1, max_size=40), st.integers(1, 9), min_size=1), st.integers(4, 40))
def test_sizes_and_probabilities(counts: dict[str, int], size: int) -> None:
    pieces = train(counts, size)
    names = [piece for piece, _ in pieces]
    characters = {character for word in counts for character in word}
    assert len(set(names)) == len(names) <= max(size, len(characters)) and characters <= set(names)
    assert sum(np.exp(score) for _, score in pieces) <= 1.01
    assert pieces == train(dict(reversed(counts.items())), size)


def test_a_single_character_is_a_vocabulary() -> None:
    assert train({"a": 3}, 10) == [("a", pytest.approx(0.0))]
