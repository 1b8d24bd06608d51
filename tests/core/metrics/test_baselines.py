"""Simple methods give what scikit-learn gives."""

from __future__ import annotations

import random

import numpy as np
import pytest

from qkv.core.metrics.baselines import TfIdf, naive_bayes, ridge, usual_tags, word_cosines, word_retrieval, words

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")

VOCABULARY = ("good", "bad", "film", "The", "actor", "plot", "music", ",", "!", "dull", "fine", "été")


def texts(n: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(VOCABULARY, k=draw.randint(1, 12))) for _ in range(n)]


def test_words_are_in_lower_case_and_symbols_of_scripts_without_spaces() -> None:
    assert words("The film, été!") == ["the", "film", ",", "été", "!"] and words("我喜欢") == ["我", "喜", "欢"]


def test_naive_bayes_matches_scikit_learn() -> None:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB

    train, new = texts(200, 0), [*texts(100, 1), "unseen words only", ""]
    labels = [("pos", "neg", "mixed")[(len(text) + (" bad" in text)) % 3] for text in train]
    vectorizer = CountVectorizer(tokenizer=words, lowercase=False, token_pattern=None)
    expected = MultinomialNB().fit(vectorizer.fit_transform(train), labels).predict(vectorizer.transform(new))
    assert naive_bayes(train, labels, new) == expected.tolist()


def test_tf_idf_and_ridge_regression_match_scikit_learn() -> None:
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


def test_retrieval_by_words_matches_scikit_learn() -> None:
    """With one relevant document per query, the label ranking average precision is the MRR."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.metrics import label_ranking_average_precision_score, ndcg_score, top_k_accuracy_score

    train, documents = texts(200, 0), list(dict.fromkeys(texts(400, 1)))
    queries = [f"{' '.join(text.split()[::2])} query{i}" for i, text in enumerate(documents)]
    vectorizer = TfidfVectorizer(tokenizer=words, lowercase=False, token_pattern=None).fit(train)
    scores = (vectorizer.transform(queries) @ vectorizer.transform(documents).T).toarray()
    found, own = word_retrieval(train, queries, documents), np.eye(len(documents))
    assert len(documents) > 256 and 0.1 < found["mrr"] < 0.9
    assert found["mrr"] == pytest.approx(label_ranking_average_precision_score(own, scores.round(12)), abs=1e-3)
    spread = scores - 1e-9 * own  # the relevant document after others of the same cosine
    assert found["ndcg@10"] == pytest.approx(ndcg_score(own, spread, k=10), abs=1e-3)
    for k in (1, 5, 10):
        expected = top_k_accuracy_score(np.arange(len(own)), spread, k=k)
        assert found[f"recall@{k}"] == pytest.approx(expected, abs=3e-3)


def test_equal_texts_are_one_query_or_document() -> None:
    """The query "good" has two documents, at ranks 1 and 2 of three."""
    found = word_retrieval(texts(50, 0), ["good", "good", "dull"], ["good film", "good", "dull"])
    assert found["mrr"] == found["mean_average_precision"] == found["recall@5"] == 1 and found["recall@1"] == 0.75


def test_the_most_frequent_tag_of_each_word() -> None:
    known, other = usual_tags([(["New", "York", "is"], ["B", "I", "O"]), (["New", "is"], ["O", "O"]), (["New"], ["B"])])
    assert known == {"New": "B", "York": "I", "is": "O"} and other == "O"
