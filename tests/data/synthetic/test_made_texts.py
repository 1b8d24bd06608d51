"""Made texts mean what their labels say, and bags of words can't tell."""

from __future__ import annotations

import re

import numpy as np
import pytest

from qkv.data.source import Source
from qkv.data.synthetic.film_reviews import _GOOD, _NOT, Verdicts
from qkv.data.synthetic.match_reports import Matches
from qkv.data.synthetic.paraphrases import _BEINGS, _DEEDS, _PLACES, Paraphrases
from qkv.data.synthetic.story_endings import _NEEDS, _SHE, Endings

SOURCES = [Verdicts(), Paraphrases(), Endings(), Matches()]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.kind)
def test_splits_share_nothing_and_are_always_the_same(source: Source) -> None:
    small = source.replace(train=300, validation=50, test=50)
    key = "source" if source.kind == "matches" else "text"
    train, val, test = ({e[key] for e in small.examples(split)} for split in ("train", "validation", "test"))
    assert len(val) == len(test) == 50 and not train & val and not train & test and not val & test
    assert [*small.examples("train", seed=1, epoch=2)] == [*small.examples("train", seed=1, epoch=2)]
    assert [*small.examples("train", seed=1, epoch=1)] != [*small.examples("train", seed=1, epoch=2)]


def verdict(text: str) -> str:
    main = text.split(" but ")[-1].split(" , yet ")[-1].split(" , ")[-1].split(" although ")[0]
    words = main.split()
    return "positive" if (words[-1] in _GOOD) != (words[-2] in _NOT) else "negative"


def test_a_verdict_is_that_of_the_main_clause() -> None:
    for example in Verdicts(train=500).examples("train"):
        assert verdict(example["text"]) == example["label"], example


def test_verdicts_are_more_than_their_words() -> None:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    train, test = ([*Verdicts(train=3000).examples(split)] for split in ("train", "test"))
    bag = make_pipeline(CountVectorizer(), LogisticRegression(max_iter=500))
    bag.fit([e["text"] for e in train], [e["label"] for e in train])
    right = bag.score([e["text"] for e in test], [e["label"] for e in test])
    assert 0.45 < right < 0.75


def meaning(text: str) -> tuple[int, ...]:
    place = next(i for i, words in enumerate(_PLACES) if re.search(rf"in the ({'|'.join(words)})", text))
    deed = next(i for i, words in enumerate(_DEEDS) if re.search(rf"\b({'|'.join(words)})\b", text))
    found = re.findall(rf"the ({'|'.join(word for words in _BEINGS for word in words)})\b", text)
    who, whom = (next(i for i, words in enumerate(_BEINGS) if word in words) for word in found)
    return (whom, deed, who, place) if " by " in text else (who, deed, whom, place)


def test_a_score_is_what_both_sentences_agree_in() -> None:
    scores = []
    for e in Paraphrases(train=400).examples("train"):
        same = sum(a == b for a, b in zip(meaning(e["text"]), meaning(e["pair"]), strict=True))
        scores.append(e["score"])
        assert e["score"] == 5 * same / 4
    assert set(scores) == {0, 1.25, 2.5, 3.75, 5} and np.std(scores) > 1


def test_one_ending_fits_and_each_other_is_wrong_in_one_thing() -> None:
    matters = {does: (state, things) for state, (does, things) in _NEEDS.items()}
    for e in Endings(train=200).examples("train"):
        state = next(state for state in _NEEDS if f" is {state} " in e["text"])
        she = any(f" {name} is " in e["text"] for name in _SHE)
        wrong = []
        for candidate in e["choices"]:
            pronoun, rest = candidate.split(" ", 1)
            does = next(does for does in matters if rest.startswith(does))
            answers, things = matters[does]
            wrong.append(((pronoun == "she") != she, answers != state, rest.removeprefix(f"{does} ") not in things))
        assert not any(wrong[e["answer"]])
        assert sorted(map(sum, wrong)) == [0, 1, 1, 1] and len(set(wrong)) == 4


def test_a_headline_is_the_reports_result() -> None:
    for e in Matches(train=200).examples("train"):
        teams = re.match(r"on \w+ (\w+) met (\w+) ", e["source"])
        goals = re.search(r"was (\d) to (\d) \.$", e["source"])
        assert teams and goals
        home, guest, ours, theirs = teams[1], teams[2], int(goals[1]), int(goals[2])
        if ours == theirs:
            assert e["target"] == f"{home} and {guest} drew {ours} all"
        else:
            order = (home, guest) if ours > theirs else (guest, home)
            assert e["target"] == f"{order[0]} beat {order[1]} {max(ours, theirs)} to {min(ours, theirs)}"
