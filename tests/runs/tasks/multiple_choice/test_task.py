"""Multiple choice: candidates as rows of a batch, and the objective over their scores."""

from __future__ import annotations

from typing import Any

import pytest
from whole_texts_data import CHOICES, WORDS, batch, chance

from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.runs.tasks.multiple_choice.task import Choice


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TokenizerSpec.from_dict({"kind": "word", "vocab_size": 50}), [WORDS])


def test_candidates_are_rows_and_as_many_as_there_are(tokenizer: Tokenizer) -> None:
    found = batch(Choice(), CHOICES, tokenizer)
    assert found.inputs["ids"].shape[0] == 5 and found.counts == {"loss": 2}
    for example, rows, label in zip(found.texts, found.targets["rows"].tolist(), found.labels.tolist(), strict=True):
        own = [row for row in rows if row >= 0]
        assert len(own) == len(example["choices"]) and label == example["answer"]
        for row, candidate in zip(own, example["choices"], strict=True):
            n = found.inputs["layout"].lengths[row]
            ids = [2, *tokenizer.encode(example["text"]), 3, *tokenizer.encode(candidate), 3]
            assert found.inputs["ids"][row][:n].tolist() == ids
    assert sorted({row for rows in found.targets["rows"].tolist() for row in rows} - {-1}) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("answer", "said"), [(2, "the answer is 2, and there are 2 candidates"), ("z", "the answer is 'z'")]
)
def test_an_answer_that_is_no_candidate(answer: Any, said: str, tokenizer: Tokenizer) -> None:
    example = {"text": "a", "choices": ["b", "c"], "answer": answer}
    with pytest.raises(ValueError, match=said):
        Choice().item(example, tokenizer, chance())
    assert Choice(on_error="skip").item(example, tokenizer, chance()) == "whose answer is no candidate"


def test_data_without_candidates_are_refused_before_training() -> None:
    with pytest.raises(
        ValueError, match="reads text, choices and answer, and the data have text but no choices; name the"
    ):
        Choice().check_fields({"text": "a question", "where": "x.parquet, row 1"})
    Choice().check_fields({"text": "a question", "choices": ["a", "b"], "answer": 0})
