"""Splits by chance: BPE-dropout and subword regularization draw what their papers say, and the same for the same seed."""

from __future__ import annotations

import json
import math
import pickle
from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_tokenizers import TEXTS, anything, hostile
from tokenizers import Tokenizer as Raw
from tokenizers import models

from qkv.data.tokenizers import subword_regularization as module
from qkv.data.tokenizers.subword_regularization import Lattice, MergeDropout, PackedTexts, packed, unpacked, words_of
from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.bpe import BPE
from qkv.data.tokenizers.training.pair_merges import joined
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.data.tokenizers.training.unigram import Unigram
from qkv.data.tokenizers.training.words_chars_bytes import Word

SPECS: dict[str, TokenizerSpec] = {
    "bpe": BPE(vocab_size=330, dropout=0.3, special=("<de>",)),
    "bpe-characters": BPE(vocab_size=120, byte_level=False, dropout=0.3, special=("<de>",)),
    "bpe-fallback": BPE(vocab_size=370, byte_level=False, byte_fallback=True, dropout=0.3, special=("<de>",)),
    "unigram": Unigram(vocab_size=100, dropout=0.3, special=("<de>",)),
    "unigram-fallback": Unigram(vocab_size=340, byte_fallback=True, dropout=0.3, special=("<de>",)),
}
TRAINED = {name: train(spec, TEXTS) for name, spec in SPECS.items()}
every = pytest.mark.parametrize("name", SPECS)


@every
@given(text=st.one_of(anything, hostile, st.sampled_from(TEXTS)), seed=st.integers(0, 2**64 - 1))
def test_a_sample_is_the_same_text(name: str, text: str, seed: int) -> None:
    tokenizer = TRAINED[name]
    (ids,) = tokenizer.sample([text], [seed])
    assert tokenizer.decode(ids) == tokenizer.decode(tokenizer.encode(text))
    assert not {*tokenizer.controls.values()} - {tokenizer.unk_id} & {*ids}
    assert ids.count(tokenizer.unk_id) == tokenizer.encode(text).count(tokenizer.unk_id)


@every
def test_seeds_say_all(name: str) -> None:
    tokenizer = TRAINED[name]
    texts, seeds = TEXTS * 5, range(len(TEXTS) * 5)
    rows = tokenizer.sample(texts, seeds)
    assert rows == [tokenizer.sample([text], [seed])[0] for text, seed in zip(texts, seeds, strict=True)]
    order = [*reversed(seeds)]
    assert rows == tokenizer.sample([texts[i] for i in order], order)[::-1]
    assert rows == pickle.loads(pickle.dumps(tokenizer)).sample(texts, seeds)  # a data worker's
    assert len({tuple(tokenizer.sample(TEXTS[:1], [seed])[0]) for seed in range(50)}) > 20


@every
def test_encoding_stays_as_it_is(name: str) -> None:
    tokenizer, without = TRAINED[name], train(SPECS[name].replace(dropout=0.0), TEXTS)
    assert tokenizer.encode_batch(TEXTS) == without.encode_batch(TEXTS)
    assert without.dropout == 0 and without.sample(TEXTS, range(len(TEXTS))) == without.encode_batch(TEXTS)
    assert tokenizer.encode("<de>") == tokenizer.sample(["<de>"], [1])[0] == [tokenizer.id("<de>")]


@every
def test_the_chance_is_in_the_file_and_the_library_does_not_see_it(name: str) -> None:
    tokenizer = TRAINED[name]
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.dropout == 0.3 and again.sample(TEXTS, range(len(TEXTS))) == tokenizer.sample(TEXTS, range(len(TEXTS)))
    alone = Raw.from_str(tokenizer.to_json())
    assert all(alone.encode(TEXTS[0]).ids == alone.encode(TEXTS[0]).ids for _ in range(20))


def test_the_librarys_own_dropout_is_taken_over() -> None:
    """It can't be seeded, and would be on in evaluation too."""
    raw = Raw.from_str(train(BPE(vocab_size=330), TEXTS).to_json())
    raw.model.dropout = 0.5
    tokenizer = Tokenizer.from_json(raw.to_str())
    assert tokenizer.dropout == 0.5 and tokenizer.encode_batch(TEXTS) == train(BPE(vocab_size=330), TEXTS).encode_batch(
        TEXTS
    )


@pytest.mark.parametrize(
    ("spec", "says"),
    [({"kind": "bpe", "dropout": 1.0}, "less than 1"), ({"kind": "unigram", "dropout": -0.1}, "greater than or equal")],
)
def test_dropout_out_of_reach(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        TokenizerSpec.from_dict(spec)


def test_what_cannot_be_sampled() -> None:
    words = json.loads(train(Word(), TEXTS).to_json())
    words["model"]["qkv"]["dropout"] = 0.1
    with pytest.raises(ValueError, match=r"dropout is 0.1, but only bpe and unigram"):
        Tokenizer.from_json(json.dumps(words))
    with pytest.raises(ValueError, match="3 texts and 1 seeds"):
        TRAINED["bpe"].sample(["a", "b", "c"], [1])
    with pytest.raises(ValueError, match="surrogate"):
        TRAINED["bpe"].sample(["a\ud800"], [1])


# -- the distributions ------------------------------------------------------------------------------------------------

DRAWS = 20_000


def model() -> dict[str, Any]:
    pieces = ["a", "b", "c", "ab", "bc", "abc", "abab"]
    merges = [("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc"), ("ab", "ab")]
    return {"vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": merges, "continuing_subword_prefix": None}


def by_the_paper(symbols: tuple[str, ...], p: float, weight: float = 1.0) -> Counter[tuple[str, ...]]:
    """Algorithm 1 of Provilkov et al., with the probability of every outcome added up instead of drawn.

    At each step each merge that is possible is dropped with probability p, and the one of the highest priority that is
    left is made; when none is left, the splitting ends.
    """
    ranks = {pair: rank for rank, pair in enumerate(model()["merges"])}
    found = sorted((ranks[pair], i) for i, pair in enumerate(pairwise(symbols)) if pair in ranks)
    outcomes: Counter[tuple[str, ...]] = Counter()
    outcomes[symbols] += weight * p ** len(found)  # type: ignore[assignment]
    for dropped, (_, i) in enumerate(found):
        merged = (*symbols[:i], symbols[i] + symbols[i + 1], *symbols[i + 2 :])
        outcomes.update(by_the_paper(merged, p, weight * p**dropped * (1 - p)))
    return outcomes


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("word", ["abc", "abab", "abcab", "cab"])
def test_merges_are_dropped_as_in_the_paper(word: str, p: float) -> None:
    ids = model()["vocab"]
    usual = tuple(word)
    for pair in model()["merges"]:
        usual = tuple(joined(list(usual), pair, "".join(pair)))
    sampler, random, names = MergeDropout(model(), p, set()), Random(7), list(ids)
    drawn = Counter(
        tuple(names[i] for i in sampler.sample([tuple(ids[piece] for piece in usual)] * 1, random))
        for _ in range(DRAWS)
    )
    expected = by_the_paper(tuple(word), p)
    assert math.isclose(sum(expected.values()), 1) and drawn.keys() <= expected.keys()
    for split, probability in expected.items():
        spread = math.sqrt(probability * (1 - probability) / DRAWS)
        assert abs(drawn[split] / DRAWS - probability) < 5 * spread + 1e-9, split


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_splits_are_drawn_by_their_probability(alpha: float) -> None:
    """P(x)^α over its sum: Kudo's equation with all segmentations in place of the best l."""
    scores = {"<unk>": 0.0, "a": -3.0, "b": -2.0, "c": -4.0, "ab": -3.5, "bc": -5.0, "abc": -6.0}
    names = list(scores)
    lattice = Lattice({"vocab": [*scores.items()], "unk_id": 0}, alpha, {0})
    ways = [("a", "b", "c"), ("ab", "c"), ("a", "bc"), ("abc",)]
    weights = [math.exp(alpha * sum(scores[piece] for piece in way)) for way in ways]
    random = Random(11)
    drawn = Counter(tuple(names[i] for i in lattice.sample([(6,)], random)) for _ in range(DRAWS))
    assert drawn.keys() <= {*ways}
    for way, weight in zip(ways, weights, strict=True):
        probability = weight / sum(weights)
        assert abs(drawn[way] / DRAWS - probability) < 5 * math.sqrt(probability / DRAWS)


def test_unknown_pieces_and_bytes_stay() -> None:
    lattice = Lattice({"vocab": [("<unk>", 0.0), ("a", -1.0), ("<0x41>", 0.0), ("b", -1.0)], "unk_id": 0}, 0.5, {0})
    assert lattice.sample([(1, 0, 3), (2, 1)], Random(1)) == [1, 0, 3, 2, 1]


def test_words_are_what_the_pre_tokenizer_cut() -> None:
    assert words_of([5, 6, 7, 8], [0, 0, 1, 2]) == [(5, 6), (7,), (8,)]
    assert words_of([], []) == [] and words_of([3], [None]) == [(3,)]


def test_packed_texts_are_what_was_packed_and_remembered_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, numbers = [5, 6, 7, 8], [0, 0, 1, 2]
    assert unpacked(packed(ids, numbers)) == words_of(ids, numbers) and unpacked(packed([], [])) == []
    texts = PackedTexts(TRAINED["bpe"].raw)
    first = texts.of(TEXTS)
    assert texts.of([*TEXTS, "new"])[:-1] == first and len(texts._known) == len({*TEXTS}) + 1
    monkeypatch.setattr(module, "MOST_BYTES", texts._bytes)
    assert texts.of(["newer"]) == PackedTexts(TRAINED["bpe"].raw).of(["newer"])
    assert len(texts._known) == len({*TEXTS}) + 1


def test_a_merge_with_an_empty_piece_ends() -> None:
    model = {"vocab": {"": 0, "a": 1}, "merges": [("", "a")], "continuing_subword_prefix": None}
    assert MergeDropout(model, 0.5, set()).sample([(1, 1)], Random(1)) == [1, 1]


def test_merges_of_prefixed_pieces() -> None:
    """`##b` joins `a` as `ab`."""
    vocab = {"a": 0, "##b": 1, "ab": 2}
    bpe = models.BPE(vocab, [("a", "##b")], continuing_subword_prefix="##")
    assert [token.id for token in bpe.tokenize("ab")] == [2]
    sampler = MergeDropout({"vocab": vocab, "merges": [("a", "##b")], "continuing_subword_prefix": "##"}, 0.5, set())
    random = Random(3)
    assert {tuple(sampler.sample([(2,)], random)) for _ in range(40)} == {(2,), (0, 1)}
