"""Tags are measured across the rows of a text; words that did not come and unseen tags are told apart."""

from __future__ import annotations

import pytest
import torch
from tagged_texts import ALL, WORDS, example, items

from qkv.runs.tasks.tagging.task import Tag


def test_entities_are_found_across_rows() -> None:
    words, tags = ["a", "Loka", "Meri", "sat"], ["O", "B-X", "I-X", "O"]
    task = Tag(longest=8, tags=("O", "B-X", "I-X"))
    assert task.scheme is None
    made = items(task, {"text": " ".join(words), "words": words, "tags": tags})
    metric = task.metric(ALL["bpe"])
    for item in made:
        batch = task.collate([item], 0).batch({})
        metric.update(torch.nn.functional.one_hot(batch.labels.clamp(min=0), 3).float(), batch)
    assert metric.compute()["entity_f1"].value == 1.0
    assert metric.samples(1)[0]["output"] == "a Loka/B-X Meri/I-X sat"


def test_texts_are_ranked_by_the_f1_of_their_entities() -> None:
    task = Tag(longest=16, tags=("O", "B-X"))
    metric = task.metric(ALL["bpe"])
    all_x, all_o = [0.0, 1.0], [1.0, 0.0]
    for text, tags, scores in (("a b", ["B-X", "O"], all_x), ("c d", ["O", "O"], all_o), ("e", ["B-X"], all_o)):
        (item,) = items(task, {"text": text, "words": text.split(), "tags": tags})
        metric.update(torch.tensor([[scores] * len(item.arrays["ids"])]), task.collate([item], 0).batch({}))
    extremes = metric.extremes()  # without "c d", which has no entity
    assert extremes is not None and extremes.by == "entity_f1"
    assert [(one["source"], one["score"]) for one in extremes.best] == [("a b", pytest.approx(2 / 3))]
    assert [(one["source"], one["score"]) for one in extremes.worst] == [("e", 0.0)]


def test_words_in_rows_that_did_not_come_are_not_counted() -> None:
    task = Tag(tags=("O", "X"), longest=10)
    made = items(task, example(WORDS))
    metric = task.metric(ALL["bpe"])
    batch = task.collate([made[-1]], 0).batch({})
    metric.update(torch.nn.functional.one_hot(batch.labels.clamp(min=0), 2).float(), batch)
    found = metric.compute()["accuracy"]
    assert len(made) > 1 and found.value == 1.0 and found.details == f"of {len(made[-1].example['at'])} words"


def test_tags_that_training_lacked_count_as_errors() -> None:
    task = Tag(tags=("NOUN", "VERB"))
    one = {"text": "cat sat", "words": ["cat", "sat"], "tags": ["NOUN", "ADV"], "where": "'f', line 3"}
    (item,) = items(task, one)
    metric = task.metric(ALL["bpe"])
    metric.update(torch.tensor([[[1.0, 0.0]] * len(item.arrays["ids"])]), task.collate([item], 0).batch({}))
    found = metric.compute()["accuracy"]
    assert found.value == 0.5 and "1 of them with a tag that training lacked" in found.details
    assert metric.confusions() == [("ADV", "NOUN", 1), ("NOUN", "NOUN", 1)]
    with pytest.raises(ValueError, match="'f', line 3: 'sat' has the tag 'ADV'"):
        items(task, one, training=True)
