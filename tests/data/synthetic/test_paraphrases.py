"""Generated paraphrases: a score is the share of the meaning in which both sentences agree."""

from __future__ import annotations

import re

import numpy as np

from qkv.data.synthetic.paraphrases import _BEINGS, _DEEDS, _PLACES, Paraphrases


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
