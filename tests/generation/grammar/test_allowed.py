"""The tokens that a grammar allows: each of them continues some allowed text."""

from __future__ import annotations

import pytest
import torch

from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.bpe import BPE
from qkv.generation.grammar.rules import Grammar

CHOICES = ["red", "rose", "blue"]
pytest.importorskip("llguidance")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(BPE(vocab_size=280), ["red rose blue " * 9])


def test_allowed_tokens_continue_a_choice(tokenizer: Tokenizer) -> None:
    end = tokenizer.eos_id
    assert end is not None
    allow = Grammar.choices(CHOICES).processor(tokenizer, tokenizer.vocab_size, [end], width=1)
    texts = [tokenizer.decode([token]) for token in range(tokenizer.vocab_size)]
    start = next(token for token, text in enumerate(texts) if text == "r")
    prompt = [5]  # a column of the prompt, which the grammar does not see
    for written in ([], [start], [start, texts.index("o")]):
        before = "".join(texts[token] for token in written)
        (row,) = allow(torch.tensor([prompt + written]), torch.zeros(1, tokenizer.vocab_size)).isfinite().tolist()
        for token, text in enumerate(texts):
            if text.isascii() and text.isprintable() and text and token != end:
                assert row[token] == any(choice.startswith(before + text) for choice in CHOICES), (before, text)
        assert not row[end]


def test_a_complete_text_can_only_end_and_a_forbidden_row_stays_as_it_is(tokenizer: Tokenizer) -> None:
    end = tokenizer.eos_id
    assert end is not None
    allow = Grammar.choices(CHOICES).processor(tokenizer, tokenizer.vocab_size, [end], width=0)
    ids, zeros = torch.tensor([tokenizer.encode("red", control=False)]), torch.zeros(1, tokenizer.vocab_size)
    assert allow(ids, zeros).isfinite().nonzero()[:, 1].tolist() == [end]
    wrong = ids.flip(1)
    assert not torch.equal(wrong, ids) and torch.equal(allow(wrong, zeros), zeros)
    with pytest.raises(ValueError, match="needs a token that ends outputs"):
        Grammar.choices(CHOICES).processor(tokenizer, tokenizer.vocab_size, [], width=0)
