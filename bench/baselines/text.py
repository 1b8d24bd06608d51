"""Baselines for labelled texts: the most frequent class, bags of words, and cosines of their weights."""

from __future__ import annotations

import argparse
from typing import Any

from qkv.data.readers.labelled_text import Labelled
from qkv.data.readers.multiple_choice import Choices

Texts = tuple[list[str], list[str]]


def majority(words: list[str]) -> dict[str, Any]:
    """The commonest class of the training data for every text."""
    from sklearn.dummy import DummyClassifier

    return {"name": "the most frequent class", **_fitted(DummyClassifier(), *_classes(words))}


def bag_of_words(words: list[str]) -> dict[str, Any]:
    """Logistic regression on the words and pairs of words that a text has, by TF-IDF."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    bag = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\S+", sublinear_tf=True)
    model = make_pipeline(bag, LogisticRegression(C=10, max_iter=1000))
    return {"name": "logistic regression on words and word pairs", **_fitted(model, *_classes(words))}


def cosine(words: list[str]) -> dict[str, Any]:
    """How alike two texts are by the cosine of their TF-IDF vectors, beside the scores."""
    from scipy.stats import pearsonr, spearmanr
    from sklearn.feature_extraction.text import TfidfVectorizer

    source = _source(words)
    bag = TfidfVectorizer(token_pattern=r"\w+", sublinear_tf=True).fit(source.texts("train"))
    test = list(source.examples("test", shuffle=False))
    a, b = (bag.transform([example[name] for example in test]) for name in ("text", "pair"))
    found, truth = a.multiply(b).sum(1).A1, [float(example["score"]) for example in test]
    figures = {"spearman": float(spearmanr(found, truth).statistic), "pearson": float(pearsonr(found, truth).statistic)}
    return {"name": "cosine of TF-IDF vectors", **figures}


def letters(words: list[str]) -> dict[str, Any]:
    """Of the candidates the one with the most letters in common with the text: the cosine of TF-IDF of runs of 2 to 4."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    parser = argparse.ArgumentParser(prog="python -m bench.baselines letters", description=letters.__doc__)
    parser.add_argument("train")
    parser.add_argument("test")
    given = parser.parse_args(words)
    source = Choices(path=given.train, validation_path=given.test, test_path=given.test)
    train, test = (list(source.examples(split, shuffle=False)) for split in ("train", "test"))
    bag = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True)
    bag.fit([text for example in train for text in (example["text"], example["choices"][example["answer"]])])
    right = 0
    for example in test:
        alike = bag.transform(example["choices"]) @ bag.transform([example["text"]]).T
        right += int(alike.toarray().argmax()) == example["answer"]
    return {"name": "the candidate with the most letters in common", "accuracy": right / len(test)}


COMMANDS = {"letters": letters, "majority": majority, "bag-of-words": bag_of_words, "tfidf-cosine": cosine}


def _source(words: list[str]) -> Labelled:
    """TRAIN TEST, and columns as the source `labelled` has them: `text=0 pair=1 score=2`."""
    parser = argparse.ArgumentParser(prog="python -m bench.baselines", description=_source.__doc__)
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    given = parser.parse_args(words)
    settings = dict(item.split("=", 1) for item in given.settings)
    columns = {key: int(value) if value.isdecimal() else value for key, value in settings.items()}
    return Labelled(path=given.train, validation_path=given.test, test_path=given.test, **columns)


def _classes(words: list[str]) -> tuple[Texts, Texts]:
    """Texts and their classes, of training and of test; the texts of a pair one after the other."""
    source = _source(words)
    sides: list[Texts] = []
    for split in ("train", "test"):
        examples = list(source.examples(split, shuffle=False))
        texts = [" ".join(example[name] for name in ("text", "pair") if name in example) for example in examples]
        sides.append((texts, [example["label"] for example in examples]))
    return sides[0], sides[1]


def _fitted(model: Any, train: Texts, test: Texts) -> dict[str, float]:
    from sklearn.metrics import f1_score

    said = model.fit(*train).predict(test[0])
    right = sum(a == b for a, b in zip(said, test[1], strict=True)) / len(said)
    return {"accuracy": right, "macro_f1": float(f1_score(test[1], said, average="macro"))}
