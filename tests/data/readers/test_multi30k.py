"""What padding costs on real sentences: the numbers of docs/data.md."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from qkv.data import Batching, Pairs, Tokenizer, stream, train_tokenizer
from qkv.data.tokenizers.training.spec import TokenizerSpec

DATA = Path(__file__).parents[3].parent / "shared" / "data" / "multi30k"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"Multi30k is not in {DATA}"),
]


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    files = {"": "train", "validation_": "val", "test_": "test_2016_flickr"}
    sides = itertools.product(files.items(), (("source", "en"), ("target", "de")))
    return Pairs(**{f"{prefix}{side}": str(DATA / f"{name}.{lang}.gz") for (prefix, name), (side, lang) in sides})


@pytest.fixture(scope="module")
def tokenizer(pairs: Pairs) -> Tokenizer:
    return train_tokenizer(TokenizerSpec.from_dict({"kind": "bpe", "vocab_size": 8000}), pairs.texts())


@pytest.mark.parametrize(
    ("fields", "least", "most"),
    [
        ({}, 0.018, 0.022),  # the share of all slots that is padding lies between them
        ({"pool": 8192}, 0.045, 0.052),
        ({"packing": True}, 0.002, 0.008),
    ],
)
def test_padded_slots(pairs: Pairs, tokenizer: Tokenizer, fields: dict, least: float, most: float) -> None:
    batching = Batching(tokens=4096, max_length=128, **fields)
    with stream(pairs, tokenizer, batching, seq2seq=True, epochs=1) as batches:
        slots = [batch.slots for batch in batches]
        assert least < 1 - batches.report.fill < most
    assert max(slots) <= 4096 and sum(slots) / len(slots) > 3900


@pytest.mark.parametrize("rows", [32, 128])
def test_padding_of_random_batches(pairs: Pairs, tokenizer: Tokenizer, rows: int) -> None:
    """What the collators do that pad each batch of shuffled examples to its longest."""
    examples = list(pairs.examples("train", seed=0))
    sides = [
        [len(ids) + 1 for ids in tokenizer.encode_batch([e[name] for e in examples])] for name in ("source", "target")
    ]
    slots = 0
    for at in range(0, len(examples), rows):
        slots += sum(len(side[at : at + rows]) * max(side[at : at + rows]) for side in sides)
    assert {32: 0.45, 128: 0.54}[rows] < 1 - sum(map(sum, sides)) / slots < {32: 0.49, 128: 0.58}[rows]
