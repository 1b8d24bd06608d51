"""Text similarity: both texts of a pair as rows of a batch, with scores or without."""

from __future__ import annotations

import pytest
from whole_texts_data import PLAIN, SCORED, TYPED, WORDS, Given, batch, chance

from qkv.data.source import Skipped
from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.runs.tasks.text_similarity.task import Similarity


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TokenizerSpec.from_dict({"kind": "word", "vocab_size": 50}), [WORDS])


def test_both_texts_of_a_pair_are_rows_apart(tokenizer: Tokenizer) -> None:
    task = Similarity().resolve(Given(train=tuple(SCORED)), tokenizer, TYPED)
    assert (task.low, task.high, task.n_labels) == (1, 4, None)
    found = batch(task, SCORED, tokenizer)
    assert found.inputs["ids"].shape[0] == 4 and sorted(found.labels.tolist()) == [0, 1]
    for example, rows in zip(found.texts, found.targets["rows"].tolist(), strict=True):
        for name, row in zip(("text", "pair"), rows, strict=True):
            n = found.inputs["layout"].lengths[row]
            assert found.inputs["ids"][row][1 : n - 1].tolist() == tokenizer.encode(example[name])


def test_pairs_without_scores_belong_together_and_a_text_to_itself(tokenizer: Tokenizer) -> None:
    examples = [{"text": "a b"}, {"text": "c d", "pair": "e"}]
    task = Similarity().resolve(Given(train=tuple(examples)), tokenizer, PLAIN)
    found = batch(task, examples, tokenizer)
    assert found.labels is None and found.counts == {"loss": 2}
    rows = found.targets["rows"][[e["text"] for e in found.texts].index("a b")]
    assert found.inputs["ids"][rows[0]].tolist() == found.inputs["ids"][rows[1]].tolist()
    with pytest.raises(ValueError, match="chooses pairs by their score, and these data have none"):
        Similarity(positive=3).resolve(Given(train=tuple(examples)), tokenizer, PLAIN)


def test_only_what_is_alike_enough_is_trained_on_as_belonging_together(tokenizer: Tokenizer) -> None:
    task = Similarity(positive=3).resolve(Given(train=tuple(SCORED)), tokenizer, PLAIN)
    assert [isinstance(i, Skipped) for i in task.items(SCORED, tokenizer, chance(True))] == [True, False]
    assert not any(isinstance(i, Skipped) for i in task.items(SCORED, tokenizer, chance(False)))


def test_the_default_metric_matches_retrieval_for_pairs_without_scores() -> None:
    plain = Given(train=(), others=({"text": "a b", "pair": "c"},))
    assert Similarity().measured("spearman", plain) == "mrr"
    assert Similarity().measured("loss", plain) == "loss"
    assert Similarity().measured("spearman", Given(train=(), others=tuple(SCORED))) == "spearman"
