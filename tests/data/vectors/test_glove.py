"""GloVe: co-occurrences and training steps match their definitions."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.vectors.glove import GloVe, _Fit, cooccurrences
from qkv.data.vectors.training import VectorCorpus

TOPICS = [["wave", "fish", "boat", "salt", "tide"], ["cloud", "wind", "bird", "star", "moon"]]


def topics(lines: int = 400, mixed: bool = False) -> list[str]:
    """Lines of one topic each, or of both, the words in any order."""
    random = Random(0)
    groups = [[*TOPICS[0], *TOPICS[1]]] if mixed else TOPICS
    return [" ".join(random.choices(random.choice(groups), k=8)) for _ in range(lines)]


@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=9), min_size=1, max_size=5), st.integers(1, 4))
def test_cooccurrences_match_the_definition(lines: list[list[str]], window: int) -> None:
    lines = [*lines, ["a", "b"]]
    corpus = VectorCorpus.of(map(" ".join, lines), min_count=1)
    wanted = np.zeros((len(corpus.words),) * 2)
    for line in lines:
        for i, word in enumerate(line):
            for j in range(max(0, i - window), min(len(line), i + window + 1)):
                if i != j:
                    wanted[corpus.words.index(word), corpus.words.index(line[j])] += 1 / abs(i - j)
    found = cooccurrences(corpus, window)
    dense = np.zeros_like(wanted)
    dense[found.words, found.contexts] = found.counts
    np.testing.assert_allclose(dense, wanted, rtol=1e-6)
    assert len(found.counts) == np.count_nonzero(wanted)


def test_a_long_text_is_counted_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = VectorCorpus.of(topics(40), min_count=1)
    whole = cooccurrences(corpus, 3)
    monkeypatch.setattr("qkv.data.vectors.glove._WORDS", 17)
    for a, b in zip(whole, cooccurrences(corpus, 3), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_step_is_adagrad_on_the_weighted_squares() -> None:
    fit = _Fit(5, 3, torch.Generator().manual_seed(0))
    fit.w.normal_()
    fit.c.normal_()
    fit.w[:, -1] = fit.c[:, -2] = 1
    i, j = torch.tensor([0, 3]), torch.tensor([1, 2])  # no row twice, so a batch is what single steps are
    target, weight = torch.tensor([0.3, -1.0]), torch.tensor([1.0, 0.25])
    w, b = fit.w[:, :3].clone().requires_grad_(), fit.w[:, 3].clone().requires_grad_()
    c, d = fit.c[:, :3].clone().requires_grad_(), fit.c[:, 4].clone().requires_grad_()
    (0.5 * weight * ((w[i] * c[j]).sum(1) + b[i] + d[j] - target).square()).sum().backward()
    parts = [(p - 0.05 * p.grad / (1 + p.grad**2).sqrt()).detach() for p in (w, b, c, d) if p.grad is not None]
    fit.step(i, j, target, weight, 0.05)
    torch.testing.assert_close([fit.w[:, :3], fit.w[:, 3], fit.c[:, :3], fit.c[:, 4]], parts)
    assert (fit.w[:, -1] == 1).all() and (fit.c[:, -2] == 1).all()


def test_lines_of_one_word_give_nothing_to_count() -> None:
    with pytest.raises(ValueError, match="no line of the text has two of the words"):
        GloVe().train(VectorCorpus.of(["a", "b"], min_count=1))


def test_a_text_may_be_shorter_than_the_window() -> None:
    found = cooccurrences(VectorCorpus.of(["a", "a b"], min_count=1), 10)
    assert found.words.tolist() == [0, 1] and found.contexts.tolist() == [1, 0] and found.counts.tolist() == [1, 1]
