"""Text regression: scores in units of their spread, and scores that are no number."""

from __future__ import annotations

from typing import Any

import pytest
from whole_texts_data import PLAIN, SCORED, WORDS, Given, batch, chance

from qkv.data.source import Skipped
from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.runs.tasks.text_regression.task import Regress
from qkv.runs.tasks.text_similarity.task import Similarity


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TokenizerSpec.from_dict({"kind": "word", "vocab_size": 50}), [WORDS])


def test_numbers_are_learned_in_units_of_their_spread(tokenizer: Tokenizer) -> None:
    task = Regress().resolve(Given(train=tuple(SCORED)), tokenizer, PLAIN)
    assert (task.center, task.spread, task.n_labels) == (2.5, 1.5, 1)
    found = batch(task, SCORED, tokenizer)
    assert sorted(found.labels.tolist()) == [-1, 1] and found.labels.dtype.is_floating_point
    assert [task.score(y) for y in sorted(found.labels.tolist())] == [1, 4]


@pytest.mark.parametrize(
    ("score", "said"),
    [
        ("five", "'five', which is no number"),
        ("nan", "no finite number; correct it"),
        ("45%", "write it without a percent sign"),
        ("4,5", "data.decimal="),
        (7, "outside 0.0 … 5.0"),
        (True, "True"),
    ],
)
def test_a_score_that_is_none_is_refused_or_counted(score: Any, said: str, tokenizer: Tokenizer) -> None:
    example = {"text": "a", "pair": "b", "score": score, "where": "x"}
    for task in (Regress(low=0, high=5), Similarity(low=0, high=5)):
        with pytest.raises(ValueError, match=said):
            task.item(example, tokenizer, chance())
        assert isinstance(task.replace(on_error="skip").item(example, tokenizer, chance()), Skipped)
