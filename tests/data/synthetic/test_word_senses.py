from __future__ import annotations

from itertools import combinations

import pytest

from qkv.data.source import SPLITS
from qkv.data.synthetic.word_senses import WORDS, Senses


def test_every_word_has_two_meanings_or_more_in_every_split() -> None:
    for split in SPLITS:
        found = [(example["word"], example["sense"]) for example in Senses().examples(split, shuffle=False)]
        for word, senses in WORDS.items():
            counts = [found.count((word, sense.name)) for sense in senses]
            assert len(counts) >= 2 and min(counts) >= 15


def test_a_sentence_belongs_to_one_split_and_holds_its_word_once() -> None:
    texts = {split: [example["text"] for example in Senses().examples(split)] for split in SPLITS}
    assert all(len(set(found)) == len(found) for found in texts.values())
    assert not any(set(texts[a]) & set(texts[b]) for a, b in combinations(SPLITS, 2))
    for example in Senses().examples("test"):
        assert example["text"].split().count(example["word"]) == 1


def test_meanings_are_told_by_what_stands_before_the_word() -> None:
    """No two meanings share an opening, a compound or an ending; between them and the word stands nothing that tells."""
    for senses in WORDS.values():
        for a, b in combinations(senses, 2):
            assert a.name != b.name and a.compound != b.compound
            assert not set(a.before) & set(b.before) and not set(a.after) & set(b.after)


def test_words_are_chosen_by_name() -> None:
    assert {example["word"] for example in Senses(words=("seal",)).examples()} == {"seal"}
    with pytest.raises(ValueError, match="there are no sentences about 'bark'; did you mean 'bank'"):
        Senses.from_dict({"words": ["bark"]})
