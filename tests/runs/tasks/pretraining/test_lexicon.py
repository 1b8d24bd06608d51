from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from qkv.data.batching.ragged import Ragged
from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.runs.tasks.pretraining.lexicon import lexicon

TEXTS = ["The cats sat on mats. They ate! Did the cat_nap?\n  foo(bar, x1) = 7\n"] * 4


@pytest.fixture(scope="module", params=["bpe", "wordpiece", "unigram", "byte", "char"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    sizes = {"bpe": 300, "wordpiece": 90, "unigram": 40}
    size = {"vocab_size": sizes[request.param]} if request.param in sizes else {}
    return train(TokenizerSpec.from_dict({"kind": request.param, "special": ["<x>"], **size}), TEXTS)


def test_words_begin_where_letters_follow_what_is_none(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("The cats sat on mats.")
    rows = Ragged.of([ids, ids])
    begins = lexicon(tokenizer).words(rows)
    assert begins[: len(ids)].tolist() == begins[len(ids) :].tolist()
    edges = [*np.flatnonzero(begins[: len(ids)]).tolist(), len(ids)]
    words = [tokenizer.decode(ids[a:b]).strip() for a, b in pairwise(edges)]
    assert [word for word in words if word] == ["The", "cats", "sat", "on", "mats", "."]


def test_sentences_end_with_their_marks(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("They ate! The cat sat. Did mats")
    begins = lexicon(tokenizer, (".", "!")).sentences(Ragged.of([ids]))
    edges = [*np.flatnonzero(begins).tolist(), len(ids)]
    said = [tokenizer.decode(ids[a:b]).strip() for a, b in pairwise(edges)]
    assert [text.replace(" ", "") for text in said] == ["Theyate!", "Thecatsat.", "Didmats"]


def test_lines_are_sentences_where_that_is_asked_for() -> None:
    tokenizer = train("byte", TEXTS)
    ids = tokenizer.encode("a.b\nc!\n")
    assert np.flatnonzero(lexicon(tokenizer, ("\n",)).sentences(Ragged.of([ids]))).tolist() == [0, 4]


def test_markers_and_control_tokens_are_no_words(tokenizer: Tokenizer) -> None:
    ordinary = set(lexicon(tokenizer).ordinary.tolist())
    assert tokenizer.id("<x>") not in ordinary and not ordinary & set(tokenizer.controls.values())
    assert set(tokenizer.encode("The cats")) <= ordinary
