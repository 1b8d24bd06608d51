"""Prefix language modeling: the prefix has its role, and labels come after it."""

from __future__ import annotations

import numpy as np
import pytest
from pretraining_texts import opened, prose

from qkv.core.batch import IGNORE
from qkv.core.layout import Role
from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.bpe import BPE


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    special = tuple(f"<extra_id_{i}>" for i in range(20))
    spec = BPE(vocab_size=420, bos="[CLS]", eos="[SEP]", pad="[PAD]", unk="[UNK]", special=special)
    return train(spec.with_roles(["mask"]), [prose(i, 6) for i in range(40)])


def test_labels_are_behind_the_prefix(tokenizer: Tokenizer) -> None:
    batches = list(opened({"kind": "prefix-language-model"}, tokenizer))
    sizes = []
    for batch in batches:
        layout, ids, labels = batch.inputs["layout"], batch.inputs["ids"], batch.labels
        assert labels is not None and ids.shape[1] <= 32
        for row, roles, said, n in zip(ids, layout.roles, labels, layout.lengths, strict=True):
            size = int((roles & Role.PREFIX).ne(0).sum())
            assert (roles[:size] == Role.PREFIX).all() and row[0] == tokenizer.bos_id
            assert (said[: size - 1] == IGNORE).all() and (said[size - 1 : n] != IGNORE).all()
            assert said[size - 1 : n - 1].tolist() == row[size:n].tolist()
            sizes.append(size / n)
    assert np.std(sizes) > 0.15
