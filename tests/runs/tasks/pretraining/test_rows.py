"""Rows of pre-training tasks: texts left out, tokenizers that lack a token, wrong settings."""

from __future__ import annotations

from typing import Any

import pytest
from pretraining_texts import opened, prose

from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.bpe import BPE
from qkv.data.tokenizers.training.wordpiece import WordPiece
from qkv.runs.tasks.masked_language_modeling.task import MaskedLanguageModel


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    special = tuple(f"<extra_id_{i}>" for i in range(20))
    spec = BPE(vocab_size=420, bos="[CLS]", eos="[SEP]", pad="[PAD]", unk="[UNK]", special=special)
    return train(spec.with_roles(["mask"]), [prose(i, 6) for i in range(40)])


def test_what_is_in_no_row_is_counted(tokenizer: Tokenizer) -> None:
    with opened(MaskedLanguageModel(), tokenizer, more=True) as batches:
        list(batches)
        assert batches.report.skipped == {
            "without the second sentence that task.next_sentence asks for (task.next_sentence=false trains without it)": 2
        }
    single = train(WordPiece(vocab_size=120, bos="[CLS]", eos="[SEP]", mask="[MASK]"), [prose(0, 90)])
    for kind in ({"kind": "masked-language-model", "next_sentence": False}, {"kind": "prefix-language-model"}):
        with opened(kind, single, more=True) as batches:
            list(batches)
            assert batches.report.skipped == {"with fewer than two tokens": 1}


def test_a_tokenizer_without_what_the_task_needs_is_told() -> None:
    bare = train(BPE(vocab_size=300), [prose(0, 30)])
    for kind in ("masked-language-model", "denoising", "replaced-tokens"):
        with pytest.raises(ValueError, match="needs a tokenizer with a mask token"):
            opened({"kind": kind}, bare)
    with pytest.raises(ValueError, match=r"needs a tokenizer with 100 sentinels, and this one has no <extra_id_0>"):
        opened({"kind": "span-corruption"}, bare)


@pytest.mark.parametrize(
    ("task", "settings", "said"),
    [
        (
            {"kind": "masked-language-model"},
            {"context": 5},
            "batching.context is 5, and a row needs 3 for special tokens",
        ),
        ({"kind": "masked-language-model", "masked": 0.9, "swapped": 0.2}, {}, "give two that make 1 or less"),
        ({"kind": "masked-language-model", "rate": 0}, {}, "greater than 0"),
    ],
)
def test_mistakes_are_one_sentence(
    task: dict[str, Any], settings: dict[str, Any], said: str, tokenizer: Tokenizer
) -> None:
    with pytest.raises(ValueError, match=said):
        list(opened(task, tokenizer, **settings))
