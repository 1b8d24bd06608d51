"""Simple methods give what scikit-learn gives."""

from __future__ import annotations

import random

import numpy as np
import pytest

from qkv.metrics.baselines import TfIdf, naive_bayes, ridge, usual_tags, word_cosines, words

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")

VOCABULARY = ("good", "bad", "film", "The", "actor", "plot", "music", ",", "!", "dull", "fine", "été")


def texts(n: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(VOCABULARY, k=draw.randint(1, 12))) for _ in range(n)]


def test_words_are_in_lower_case_and_symbols_of_scripts_without_spaces() -> None:
    assert words("The film, été!") == ["the", "film", ",", "été", "!"] and words("我喜欢") == ["我", "喜", "欢"]


def test_naive_bayes_is_that_of_scikit_learn() -> None:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB

    train, new = texts(200, 0), [*texts(100, 1), "unseen words only", ""]
    labels = [("pos", "neg", "mixed")[(len(text) + (" bad" in text)) % 3] for text in train]
    vectorizer = CountVectorizer(tokenizer=words, lowercase=False, token_pattern=None)
    expected = MultinomialNB().fit(vectorizer.fit_transform(train), labels).predict(vectorizer.transform(new))
    assert naive_bayes(train, labels, new) == expected.tolist()


def test_tf_idf_and_ridge_regression_are_those_of_scikit_learn() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import Ridge

    train, new = texts(200, 0), [*texts(50, 1), ""]
    numbers = [len(text) / 7 + 3 * ("bad" in text) for text in train]
    vectorizer = TfidfVectorizer(tokenizer=words, lowercase=False, token_pattern=None)
    x, y = vectorizer.fit_transform(train), vectorizer.transform(new)
    ours = TfIdf(train)
    order = [ours.vocabulary[word] for word in vectorizer.get_feature_names_out()]
    np.testing.assert_allclose(ours(new).toarray()[:, order], y.toarray(), atol=1e-12)
    model = Ridge(fit_intercept=False, solver="cholesky").fit(x, np.array(numbers) - np.mean(numbers))
    np.testing.assert_allclose(ridge(train, numbers, new), model.predict(y) + np.mean(numbers), atol=1e-5)
    np.testing.assert_allclose(word_cosines(train, new[:25], new[25:50]), (y[:25].multiply(y[25:50])).sum(1).A1)


def test_the_most_frequent_tag_of_each_word() -> None:
    known, other = usual_tags([(["New", "York", "is"], ["B", "I", "O"]), (["New", "is"], ["O", "O"]), (["New"], ["B"])])
    assert known == {"New": "B", "York": "I", "is": "O"} and other == "O"
