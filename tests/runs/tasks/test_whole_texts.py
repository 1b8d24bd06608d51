"""Tasks on whole texts: pairs, token types, global tokens, truncation and the size of batches."""

from __future__ import annotations

import pytest
from whole_texts_data import CHOICES, WORDS, Given, batch, chance

from qkv.core.layout import Role
from qkv.data.batching.settings import Batching
from qkv.data.loader.stream import stream
from qkv.data.source import Example, Skipped
from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.runs.tasks.multiple_choice.task import Choice
from qkv.runs.tasks.text_classification.task import Classify


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TokenizerSpec.from_dict({"kind": "word", "vocab_size": 50}), [WORDS])


def test_the_first_token_sees_all_where_the_model_has_such_tokens(tokenizer: Tokenizer) -> None:
    task = Classify(classes=("0", "1"))
    examples: list[Example] = [{"text": "a b", "label": 0}, {"text": "b", "label": 1}]
    assert batch(task, examples, tokenizer).inputs["layout"].roles is None
    layout = batch(task.with_global_tokens(), examples, tokenizer).inputs["layout"]
    assert layout.n_global == 1 and (layout.roles == Role.GLOBAL).nonzero().tolist() == [[0, 0], [1, 0]]
    assert Classify(global_tokens="none").with_global_tokens().global_tokens == "none"


def test_a_pair_is_one_row_with_types_where_the_model_has_them(tokenizer: Tokenizer) -> None:
    example = {"text": "a b", "pair": "c", "label": "x"}
    found = batch(Classify(classes=("x", "y"), segments=2), [example], tokenizer)
    assert found.inputs["ids"].tolist() == [[2, *tokenizer.encode("a b"), 3, *tokenizer.encode("c"), 3]]
    assert found.inputs["token_types"].tolist() == [[0, 0, 0, 0, 1, 1]]
    assert [*Classify().texts(example)] == ["a b", "c"]


def test_long_texts_are_cut_or_skipped(tokenizer: Tokenizer) -> None:
    example = {"text": WORDS, "label": "x"}
    cut, skip = (Classify(classes=("x", "y"), longest=6, over_long=how) for how in ("cut", "skip"))
    made = cut.item(example, tokenizer, chance())
    assert not isinstance(made, Skipped) and made.arrays["ids"].shape == (6,) and made.cut  # type: ignore[attr-defined]
    assert skip.item(example, tokenizer, chance()) == "over-long"


def test_batches_are_no_larger_than_they_may_be(tokenizer: Tokenizer) -> None:
    source = Given(train=tuple(CHOICES) * 40)
    with stream(source, tokenizer, Batching(tokens=64, workers=0), seq2seq=False, task=Choice(), epochs=1) as batches:
        sizes = [b.slots for b in batches]
    assert len(sizes) > 20 and max(sizes) <= 64
