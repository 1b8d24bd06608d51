"""Generated sources: splits share no example, and a table is the same whenever it is opened."""

from __future__ import annotations

import pytest

from qkv.data.source import Source
from qkv.data.synthetic.chord_progressions import Progressions
from qkv.data.synthetic.fact_questions import Facts
from qkv.data.synthetic.film_reviews import Verdicts
from qkv.data.synthetic.made_speech import MadeSpeech
from qkv.data.synthetic.match_reports import Matches
from qkv.data.synthetic.paraphrases import Paraphrases
from qkv.data.synthetic.proteins import Folds
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


@pytest.mark.parametrize("source", [MadeSpeech(), Folds(), Progressions(), Facts()], ids=lambda source: source.kind)
def test_a_range_that_holds_no_length_is_refused(source: Source) -> None:
    shortest = source.to_dict().get("shortest", type(source).model_fields["shortest"].default)
    with pytest.raises(ValueError, match=rf"longest \({shortest}\) is less than shortest \({shortest + 1}\); raise"):
        source.replace(longest=shortest, shortest=shortest + 1)
    one = source.replace(longest=shortest, train=5)
    assert len([*one.examples("train")]) == 5
