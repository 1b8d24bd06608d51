"""Tags of words: labels at first tokens, long texts in several rows, tags that nobody knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tagged_texts import ALL, CHANCE, WORDS, example, items

from qkv.core.batch import IGNORE
from qkv.data.source import Skipped, Source
from qkv.data.synthetic.named_entities import Mentions
from qkv.data.synthetic.proteins import Folds
from qkv.nn.layers.embedding import Embedding
from qkv.runs.tasks.pieces import pieces_of
from qkv.runs.tasks.tagging.task import Tag, first_pieces


@pytest.mark.parametrize("name", ALL)
@given(words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=12))
@settings(max_examples=25, deadline=None)
def test_each_word_has_its_label_at_its_first_token(name: str, words: list[str]) -> None:
    one = example(words)
    (item,) = items(Tag(tags=("O", "X")), one, name)
    places = item.example["at"]
    assert sorted(set(places)) == places and len(places) == len(words)
    assert [("O", "X")[item.labels[at]] for at in places] == one["tags"]
    assert (item.labels != IGNORE).sum() == len(words)
    ids = item.arrays["ids"]
    assert (ids[0], ids[-1]) == (ALL[name].bos_id, ALL[name].eos_id)
    for word, at in zip(words, places, strict=True):
        assert ALL[name].decode([ids[at]]).strip().removeprefix("##")[:1] == word[0]


@given(words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=40), longest=st.integers(8, 30))
@settings(max_examples=50, deadline=None)
def test_a_long_text_becomes_rows_that_hold_every_word_once(words: list[str], longest: int) -> None:
    made = items(Tag(tags=("O", "X"), longest=longest), example(words))
    assert all(len(item.arrays["ids"]) <= longest for item in made)
    assert sum(int((item.labels != IGNORE).sum()) for item in made) == len(words)
    assert [item.example["first"] for item in made] == list(
        np.cumsum([0, *(len(item.example["at"]) for item in made)])[:-1]
    )
    task = Tag(tags=("O", "X"), longest=longest)
    metric = task.metric(ALL["bpe"])
    for item in reversed(made):  # whatever the order of batches
        batch = task.collate([item], 0).batch({})
        metric.update(torch.nn.functional.one_hot(batch.labels.clamp(min=0), 2).float(), batch)
    assert metric.compute()["accuracy"].value == 1.0


def test_symbols_of_a_string_are_words_and_hidden_ones_are_not_counted() -> None:
    text = "matcat"
    one = {"text": text, "words": text, "tags": ["H", "H", "", "", "C", "C"]}
    task = Tag(tags=("C", "H"))
    (item,) = items(task, one, "char", training=True)
    assert item.labels.tolist() == [IGNORE, 1, 1, IGNORE, IGNORE, 0, 0, IGNORE]
    batch = task.collate([item], 0).batch({})
    assert batch.counts == {"loss": 4}
    metric = task.metric(ALL["char"])
    metric.update(torch.tensor([[[1.0, 0.0]] * 8]), batch)
    assert metric.compute()["accuracy"].value == 0.5
    assert metric.samples(1) == [{"source": text, "output": "CCCCCC", "target": "HH--CC"}]


def test_what_does_not_fit_together_is_told() -> None:
    with pytest.raises(ValueError, match="does not stand in"):
        items(Tag(tags=("O", "X")), {"text": "the cat", "words": ["cat", "the"], "tags": ["O", "O"]})
    with pytest.raises(ValueError, match="2 words have 1 tags"):
        items(Tag(tags=("O", "X")), {"text": "the cat", "words": ["the", "cat"], "tags": ["O"]})
    with pytest.raises(ValueError, match="gives no tags"):
        from qkv.data import Reverse

        Tag().resolve(Reverse(), None, Embedding())
    with pytest.raises(ValueError, match="says where its tokens stand"):
        Tag(tags=("O", "X")).items([example(["cat"])], None, CHANCE)


def test_words_that_hold_spaces_are_told_with_their_number(tmp_path: Path) -> None:
    task = Tag(tags=("O", "B-LOC", "B-NUM", "B-PER"))
    lines = ["Anna\tB-PER\nin\tO\nNew York\tB-LOC\n", "it\tO\ncosts\tO\n10\u00a0000\tB-NUM\n", "no\tO\none\tO\n"]
    path = tmp_path / "a.conll"
    path.write_text("\n".join(lines) * 2)
    given_ = {"path": str(path), "validation_path": str(path), "test_path": str(path)}
    (note,) = task.check_labels(Source.from_dict({"kind": "columns", **given_}))
    assert note.startswith("4 words of the training data hold a space, such as 'New York' (")
    assert "line 1), and have one tag each; in new texts a word ends at a space" in note
    rows = [{"words": ["New York", "is"], "tags": ["B-LOC", "O"]}, {"words": ["a", "b"], "tags": ["O", "O"]}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given_ = dict.fromkeys(given_, str(tmp_path / "a.jsonl"))
    (note,) = task.check_labels(Source.from_dict({"kind": "jsonl", "word": "words", "tag": "tags", **given_}))
    assert note.startswith("1 word of the training data holds a space, such as 'New York' (")
    (tmp_path / "a.jsonl").write_text(json.dumps(rows[1]) + "\n")
    assert task.check_labels(Source.from_dict({"kind": "jsonl", "word": "words", "tag": "tags", **given_})) == []


def test_a_text_without_a_token_is_skipped() -> None:
    (skipped,) = Tag(tags=("O", "X")).items([{"text": " ", "words": [], "tags": []}], ALL["bpe"], CHANCE)
    assert skipped == Skipped("without a token")


def test_made_data_settle_the_tags() -> None:
    task = Tag().resolve(Mentions(), None, Embedding())
    assert task.scheme == "iob2" and task.n_labels == 9 and task.tags[0] == "O"
    assert Tag().resolve(Folds(), None, Embedding()).scheme == "plain"


@pytest.mark.parametrize(
    "source", [Mentions(train=50, validation=20, test=20), Folds(train=50, validation=20, test=20)]
)
def test_made_examples_are_whole_and_those_held_out_are_never_trained_on(source: Any) -> None:
    of = {split: {one["text"] for one in source.examples(split)} for split in ("train", "validation", "test")}
    assert not of["train"] & of["test"] and not of["train"] & of["validation"] and not of["test"] & of["validation"]
    for one in source.examples("test"):
        assert len(one["words"]) == len(one["tags"]) and set(one["tags"]) <= set(source.tags)
        (pieces,) = pieces_of([one["text"]], ALL["char"])
        assert (first_pieces(one, pieces) >= 0).all()


def test_data_without_words_are_refused() -> None:
    with pytest.raises(
        ValueError, match="reads text, words and tags, and the data have text, label but no words; choose"
    ):
        Tag().check_fields({"text": "a b", "label": "x", "where": "a.csv, line 2"}, Mentions())
