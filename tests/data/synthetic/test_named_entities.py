"""Generated sentences with entities: tags are valid IOB2, one per word."""

from __future__ import annotations

from itertools import pairwise

from qkv.data.synthetic.named_entities import Mentions


def test_tags_are_iob2() -> None:
    seen = set()
    for example in Mentions(train=300).examples("train"):
        words, tags = example["words"], example["tags"]
        assert len(words) == len(tags) and example["text"] == " ".join(words)
        seen.update(tags)
        for before, tag in pairwise(["O", *tags]):
            assert not tag.startswith("I-") or before[2:] == tag[2:]
    assert seen == set(Mentions.tags)


def test_names_are_seldom_seen_again() -> None:
    names = {split: set() for split in ("train", "test")}
    for split, found in names.items():
        for example in Mentions(train=300).examples(split):
            pairs = zip(example["words"], example["tags"], strict=True)
            found.update(word for word, tag in pairs if tag == "B-person")
    assert len(names["test"] - names["train"]) > len(names["test"]) / 2
