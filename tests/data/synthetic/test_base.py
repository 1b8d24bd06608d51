"""Generated sources: splits share no example, and a table is the same whenever it is opened."""

from __future__ import annotations

import pytest

from qkv.data.source import Source
from qkv.data.synthetic.film_reviews import Verdicts
from qkv.data.synthetic.match_reports import Matches
from qkv.data.synthetic.paraphrases import Paraphrases
from qkv.data.synthetic.story_endings import Endings

SOURCES = [Verdicts(), Paraphrases(), Endings(), Matches()]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.kind)
def test_splits_share_nothing_and_are_always_the_same(source: Source) -> None:
    small = source.replace(train=300, validation=50, test=50)
    key = "source" if source.kind == "matches" else "text"
    train, val, test = ({e[key] for e in small.examples(split)} for split in ("train", "validation", "test"))
    assert len(val) == len(test) == 50 and not train & val and not train & test and not val & test
    assert [*small.examples("train", seed=1, epoch=2)] == [*small.examples("train", seed=1, epoch=2)]
    assert [*small.examples("train", seed=1, epoch=1)] != [*small.examples("train", seed=1, epoch=2)]
