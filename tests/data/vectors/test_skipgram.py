"""Skip-gram: pairs, noise, subsampling and updates match their definitions."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch

from qkv.data.vectors import skipgram
from qkv.data.vectors.skipgram import SkipGram
from qkv.data.vectors.training import VectorCorpus


def test_windows_hold_the_pairs_of_the_definition() -> None:
    corpus = VectorCorpus.of([" ".join(Random(i).choices("abcdefg", k=3 + 7 * i)) for i in range(9)], min_count=1)
    random = torch.Generator().manual_seed(0)
    text = skipgram._Text.draw(corpus, torch.ones(len(corpus.words)), 3, random)
    reach = text.reach.flatten().tolist()
    n = len(corpus)
    wanted = sorted(
        (int(corpus.ids[i]), int(corpus.ids[j]))
        for i in range(n)
        for j in range(n)
        if i != j and abs(i - j) <= reach[i] and corpus.sentences[i] == corpus.sentences[j]
    )
    found = []
    for _, step in text.steps(2, random):
        for b, i, j in step.pairs.nonzero().tolist():
            found.append((int(step.centers[b, i]), int(step.around[b, j])))
    assert sorted(found) == wanted and set(reach[:n]) == {1, 2, 3} and not any(reach[n:])


def test_an_update_is_the_gradient_of_the_objective() -> None:
    random = torch.Generator().manual_seed(1)
    v, u = (torch.randn(11, 4, generator=random, dtype=torch.float64) for _ in range(2))
    centers = torch.randint(11, (2, 3), generator=random)
    around = torch.randint(11, (2, 5), generator=random)
    pairs = torch.rand(2, 3, 5, generator=random) < 0.5
    noise = torch.randint(11, (2, 4), generator=random)
    a, b = v.clone().requires_grad_(), u.clone().requires_grad_()
    gain = torch.zeros((), dtype=torch.float64)
    for block, i, j in pairs.nonzero().tolist():
        gain = gain + (a[centers[block, i]] @ b[around[block, j]]).sigmoid().log()
        negative = -(b[noise[block]] @ a[centers[block, i]])
        gain = gain + 6 * negative.sigmoid().log().mean()  # six noise words a pair, estimated from these
    gain.backward()
    assert a.grad is not None and b.grad is not None
    wanted = v + 0.1 * a.grad, u + 0.1 * b.grad
    skipgram._update(v, u, skipgram._Step(centers, around, pairs), noise, 6, 0.1)
    torch.testing.assert_close((v, u), wanted)


def test_noise_is_drawn_as_its_distribution_says() -> None:
    weights = torch.tensor([16.0, 1.0, 1.0]).double() ** 0.75
    drawn = torch.searchsorted(skipgram._cumulative(weights), torch.rand(20_000, dtype=torch.float64))
    torch.testing.assert_close(drawn.bincount() / 20_000, (weights / weights.sum()).float(), atol=0.02, rtol=0)


def test_frequent_words_are_thinned_out() -> None:
    corpus = VectorCorpus.of(["the " * 990, "a b c d e f g h i j"], min_count=1)
    keep = dict(zip(corpus.words, SkipGram(subsample=0.01)._keep(corpus).tolist(), strict=True))
    assert keep["the"] == pytest.approx(np.sqrt(0.01 / 0.99) + 0.01 / 0.99)
    assert keep["a"] == 1
    assert SkipGram(subsample=0)._keep(corpus).tolist() == [1.0] * 11
    assert SkipGram(width=2, subsample=1e-15).train(corpus).array.shape == (11, 2)  # hardly a word is left of it
