"""GloVe training (Pennington et al. 2014): word vectors whose dot products approximate log co-occurrence counts.

    minimize Σ_ij f(X_ij) (w_i · w̃_j + b_i + b̃_j − log X_ij)²,   f(x) = min((x / x_max)^α, 1)

X_ij is the sum of 1/d over all places where word j is d words away from word i. A word's vector is w_i + w̃_i (§4.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from ..shuffle import mix
from .training import Progress, VectorCorpus, VectorMethod
from .word_vectors import Vectors

_WORDS = 1 << 21  # words of text whose pairs are counted together
_PAIRS = 4096  # pairs in one step


class GloVe(VectorMethod, kind="glove"):
    """x_max, alpha: parameters of f, which limits the weight of frequent pairs.

    AdaGrad (Duchi et al. 2011) divides each number's gradient by the root of the sum of its squares so far, plus one.
    """

    window: int = Field(default=10, ge=1, le=1000)
    epochs: int = Field(default=25, ge=1)
    lr: float = Field(default=0.05, gt=0, allow_inf_nan=False)
    x_max: float = Field(default=100.0, gt=0, allow_inf_nan=False)
    alpha: float = Field(default=0.75, ge=0, allow_inf_nan=False)

    def train(self, corpus: VectorCorpus, *, seed: int = 0, progress: Progress | None = None) -> Vectors:
        pairs = cooccurrences(corpus, self.window)
        if not len(pairs.counts):
            raise ValueError("no line of the text has two of the words, so there is nothing to count; give more text")
        random = torch.Generator().manual_seed(mix(seed) >> 1)
        fit = _Fit(len(corpus.words), self.width, random)
        counts = torch.from_numpy(pairs.counts)
        target, weight = counts.log(), (counts / self.x_max).pow(self.alpha).clamp(max=1)
        words, contexts = torch.from_numpy(pairs.words), torch.from_numpy(pairs.contexts)
        steps = self.epochs * -(-len(words) // _PAIRS)
        done = 0
        for _ in range(self.epochs):
            for chosen in torch.randperm(len(words), generator=random).split(_PAIRS):
                fit.step(words[chosen], contexts[chosen], target[chosen], weight[chosen], self.lr)
                done += 1
                if progress is not None:
                    progress(done / steps)
        return Vectors(corpus.words, fit.vectors())


class Cooccurrences(NamedTuple):
    """X_ij > 0 for words i and contexts j, ordered by (i, j), as three arrays of equal length."""

    words: Int[NDArray[np.int64], " P"]
    contexts: Int[NDArray[np.int64], " P"]
    counts: Float[NDArray[np.float32], " P"]


def cooccurrences(corpus: VectorCorpus, window: int) -> Cooccurrences:
    """How often words co-occur within `window` words of one sentence; a pair at distance d counts 1/d."""
    size = len(corpus.words)
    parts = [_sums(keys, values) for keys, values in _counted(corpus, window)]
    keys, values = _sums(*(np.concatenate(both) for both in zip(*parts, strict=True)))
    low, high = np.divmod(keys, size)
    apart = low != high
    doubled = np.where(apart, values, 2 * values)  # of a pair of equal words, each is the context of the other
    words, contexts = np.concatenate([low, high[apart]]), np.concatenate([high, low[apart]])
    order = np.argsort(words * size + contexts)
    counts = np.concatenate([doubled, values[apart]])[order].astype(np.float32)
    return Cooccurrences(words[order], contexts[order], counts)


def _counted(corpus: VectorCorpus, window: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Keys low · V + high of the pairs, part by part of the text, with 1/d for each."""
    size, bits = len(corpus.words), window.bit_length()
    for begin in range(0, len(corpus.ids), _WORDS):
        ids = corpus.ids[begin : begin + _WORDS + window].astype(np.int64)
        sentences = corpus.sentences[begin : begin + _WORDS + window]
        keys_of_distances = []
        for d in range(1, window + 1):
            stop = max(0, min(_WORDS, len(ids) - d))
            a, b = ids[:stop], ids[d : d + stop]
            same = sentences[:stop] == sentences[d : d + stop]
            keys = np.minimum(a, b) * size + np.maximum(a, b)
            keys_of_distances.append((keys[same] << bits) | d)
        packed = np.concatenate(keys_of_distances)
        yield packed >> bits, 1.0 / (packed & ((1 << bits) - 1))


def _sums(keys: NDArray[np.int64], values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The unique keys, sorted, each with the sum of its values."""
    unique, places = np.unique(keys, return_inverse=True)
    return unique, np.bincount(places, values, len(unique)).astype(np.float64, copy=False)


class _Fit:
    """The parameters, updated by AdaGrad. A word's row is (w, b, 1) and a context's is (w̃, 1, b̃), so the product of the two
    is w · w̃ + b + b̃."""

    def __init__(self, words: int, width: int, random: torch.Generator) -> None:
        self.width = width
        self.w, self.c = (torch.rand(2, words, width + 2, generator=random) - 0.5).div_(width).unbind()
        self.w[:, -1] = self.c[:, -2] = 1
        self.squares = torch.ones_like(self.w), torch.ones_like(self.c)

    def step(self, i: Int[Tensor, " P"], j: Int[Tensor, " P"], target: Tensor, weight: Tensor, lr: float) -> None:
        a, b = self.w.index_select(0, i), self.c.index_select(0, j)
        error = (weight * (torch.linalg.vecdot(a, b) - target))[:, None]
        to_w, to_c = b.mul_(error), a.mul_(error)
        to_w[:, -1] = to_c[:, -2] = 0  # the constant ones stay
        for table, squares, rows, slope in zip((self.w, self.c), self.squares, (i, j), (to_w, to_c), strict=True):
            squares.index_add_(0, rows, slope * slope)
            table.index_add_(0, rows, slope.mul_(squares.index_select(0, rows).rsqrt_()), alpha=-lr)

    def vectors(self) -> Float[NDArray[np.float32], "V E"]:
        return (self.w + self.c)[:, : self.width].numpy().copy()
