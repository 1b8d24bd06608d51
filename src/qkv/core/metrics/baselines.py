"""Simple methods that a trained model should surpass: naive Bayes, ridge regression and cosines on counted words."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ..optional_libraries import need
from ..several import worded
from .retrieval import ROWS, metrics_of, ranks_of

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Label = TypeVar("Label", bound=Hashable)
_WORD = re.compile(
    r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+|[^\w\s]"
)  # scripts without spaces: symbols


class Baseline(NamedTuple):
    """The metrics of a simple method on the examples of an evaluation, and what it does in words."""

    name: str
    metrics: dict[str, float]
    about: str = ""


def words(text: str) -> list[str]:
    """The words of a text in lower case, and its punctuation."""
    return _WORD.findall(text.lower())


@worded
def naive_bayes(texts: Sequence[str], labels: Sequence[Label], new: Iterable[str]) -> list[Label]:
    """The labels of new texts by multinomial naive Bayes, with one added to every count (McCallum and Nigam 1998):
    argmax_c log P(c) + Σ_w log (n(w, c) + 1) / (n(c) + V). Unknown words are left out."""
    classes = sorted(set(labels), key=str)
    place = {label: i for i, label in enumerate(classes)}
    vocabulary: dict[str, int] = {}
    pairs: list[Counter[int]] = [Counter() for _ in classes]
    for text, label in zip(texts, labels, strict=True):
        pairs[place[label]].update(vocabulary.setdefault(word, len(vocabulary)) for word in words(text))
    counts = np.ones((len(vocabulary), len(classes)))
    for c, counted in enumerate(pairs):
        counts[list(counted), c] += list(counted.values())
    scores = np.log(counts) - np.log(counts.sum(0))
    prior = np.log([sum(label == one for label in labels) / len(labels) for one in classes])
    best = (prior + scores[_known(text, vocabulary)].sum(0) for text in new)
    return [classes[int(score.argmax())] for score in best]


class TfIdf:
    """Texts as vectors of length 1: counts of words times log((1 + n) / (1 + n(w))) + 1, for n training texts of which n(w)
    have the word (Salton and Buckley 1988)."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.vocabulary: dict[str, int] = {}
        having = Counter[int]()
        for text in texts:
            having.update({self.vocabulary.setdefault(word, len(self.vocabulary)) for word in words(text)})
        self.weights = np.array([math.log((1 + len(texts)) / (1 + having[i])) + 1 for i in range(len(self.vocabulary))])

    def __call__(self, texts: Sequence[str]) -> csr_matrix:
        """A sparse matrix (texts, words)."""
        need("comparison with counted words", "scipy")
        from scipy.sparse import csr_matrix

        data, columns, starts = list[NDArray[Any]](), list[NDArray[Any]](), [0]
        for text in texts:
            counted = Counter(_known(text, self.vocabulary))
            ids = np.fromiter(counted, np.int64, len(counted))
            values = np.fromiter(counted.values(), float, len(counted)) * self.weights[ids]
            data.append(values / max(float(np.linalg.norm(values)), 1e-12))
            columns.append(ids)
            starts.append(starts[-1] + len(ids))
        shape = len(texts), len(self.vocabulary)
        return csr_matrix((np.concatenate([[], *data]), np.concatenate([[], *columns]).astype(int), starts), shape)


@worded
def ridge(texts: Sequence[str], numbers: Sequence[float], new: Sequence[str]) -> NDArray[Any]:
    """Numbers for new texts by ridge regression on `TfIdf` vectors: argmin_w Σ (y − mean − w·x)² + ‖w‖²."""
    need("comparison with counted words", "scipy")
    from scipy.sparse.linalg import lsqr

    vectors, y = TfIdf(texts), np.asarray(numbers, float)
    weights = lsqr(vectors(texts), y - y.mean(), damp=1.0, atol=1e-8, btol=1e-8)[0]
    predicted: NDArray[Any] = vectors(new) @ weights + y.mean()
    return predicted


@worded
def word_cosines(texts: Sequence[str], first: Sequence[str], second: Sequence[str]) -> NDArray[Any]:
    """The cosine of the `TfIdf` vectors of two texts each, with the weights of training texts."""
    vectors = TfIdf(texts)
    cosines: NDArray[Any] = np.asarray(vectors(first).multiply(vectors(second)).sum(1)).ravel()
    return cosines


@worded
def word_retrieval(texts: Sequence[str], queries: Sequence[str], documents: Sequence[str]) -> dict[str, float]:
    """The metrics of `Retrieval` if documents are ranked by the cosine of `TfIdf` vectors, with the weights of training
    texts. Document i is relevant to query i; equal texts are one query or document."""
    vectors, answers = TfIdf(texts), defaultdict[str, set[int]](set)
    place = {document: i for i, document in enumerate(dict.fromkeys(documents))}
    for query, document in zip(queries, documents, strict=True):
        answers[query].add(place[document])
    asked, held = vectors(list(answers)), vectors(list(place)).T
    starts = range(0, len(answers), ROWS)
    blocks = (torch.from_numpy((asked[start : start + ROWS] @ held).toarray()) for start in starts)
    ranks = ranks_of(blocks, [sorted(right) for right in answers.values()])
    return {name: one.value for name, one in metrics_of(ranks, len(place)).items()}


def usual_tags(sentences: Iterable[tuple[Sequence[str], Sequence[str]]]) -> tuple[dict[str, str], str]:
    """The most frequent tag of each word, and of all words."""
    counts: dict[str, Counter[str]] = {}
    every = Counter[str]()
    for sentence, tags in sentences:
        for word, tag in zip(sentence, tags, strict=True):
            if tag:
                counts.setdefault(word, Counter())[tag] += 1
                every[tag] += 1
    return {word: tags.most_common(1)[0][0] for word, tags in counts.items()}, every.most_common(1)[0][0]


def _known(text: str, vocabulary: dict[str, int]) -> list[int]:
    return [vocabulary[word] for word in words(text) if word in vocabulary]
