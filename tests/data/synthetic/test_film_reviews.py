"""Generated film reviews: labels follow from the main clause, and a bag of words can't tell them."""

from __future__ import annotations

from qkv.data.synthetic.film_reviews import _GOOD, _NOT, Verdicts


def verdict(text: str) -> str:
    main = text.split(" but ")[-1].split(" , yet ")[-1].split(" , ")[-1].split(" although ")[0]
    words = main.split()
    return "positive" if (words[-1] in _GOOD) != (words[-2] in _NOT) else "negative"


def test_a_verdict_matches_the_main_clause() -> None:
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
