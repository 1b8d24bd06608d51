"""Training of unigram tokenizers."""

from __future__ import annotations

import pytest
from made_tokenizers import TEXTS

from qkv.data.tokenizers.pipelines import contents
from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.pair_merges import MergeStep
from qkv.data.tokenizers.training.unigram import Unigram


def test_pieces_are_at_most_as_long_as_set() -> None:
    spec = Unigram(vocab_size=120, max_piece_length=3)
    vocabulary = contents(train(spec, TEXTS).raw.model)["vocab"]
    learned = vocabulary[len(spec.names) :]
    assert [name for name, _ in vocabulary[: len(spec.names)]] == spec.names
    assert max(len(piece) for piece, _ in learned) <= 3 and all(score < 0 for _, score in learned)


def test_it_needs_an_unknown_token_and_has_no_merges() -> None:
    with pytest.raises(
        ValueError, match="a unigram tokenizer can't encode every text, so it needs an unk token; set unk"
    ):
        Unigram(unk=None)
    steps: list[MergeStep] = []
    with pytest.raises(ValueError, match="only bpe and wordpiece learn merges that can be traced, not unigram"):
        train(Unigram(), TEXTS, trace=steps.append)
