"""Span corruption and denoising: sources, targets and labels of running text."""

from __future__ import annotations

import numpy as np
import pytest
from pretraining_texts import opened, prose, rows_of

from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.bpe import BPE


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    special = tuple(f"<extra_id_{i}>" for i in range(20))
    spec = BPE(vocab_size=420, bos="[CLS]", eos="[SEP]", pad="[PAD]", unk="[UNK]", special=special)
    return train(spec.with_roles(["mask"]), [prose(i, 6) for i in range(40)])


def test_spans_stand_behind_their_sentinels(tokenizer: Tokenizer) -> None:
    task = {"kind": "span-corruption", "sentinels": 20}
    batches = list(opened(task, tokenizer))
    marks = [tokenizer.id(f"<extra_id_{i}>") for i in range(20)]
    for source, target, labels in zip(*(rows_of(batches, n) for n in ("ids", "target", "labels")), strict=True):
        assert target[0] == tokenizer.bos_id and labels == [*target[1:], tokenizer.eos_id]
        assert source[-1] == tokenizer.eos_id and target[1] == marks[0] and marks[0] in source


def test_a_damaged_text_and_the_whole(tokenizer: Tokenizer) -> None:
    batches = list(opened({"kind": "denoising"}, tokenizer))
    shares = []
    for source, labels in zip(rows_of(batches), rows_of(batches, "labels"), strict=True):
        text = labels[:-1]
        kept = [token for token in source[:-1] if token != tokenizer.mask_id]
        assert not set(kept) - set(text) and len(kept) == len(text) - round(0.3 * len(text))
        shares.append(source.count(tokenizer.mask_id) / len(text))
    assert 0.05 < np.mean(shares) < 0.2
