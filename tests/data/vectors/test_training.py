"""Learning word vectors: the text as numbers, the updates as the papers' formulas give them, and what is learned."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.vectors import skipgram
from qkv.data.vectors.glove import GloVe, _Fit, cooccurrences
from qkv.data.vectors.skipgram import SkipGram
from qkv.data.vectors.training import Corpus, VectorMethod, method
from qkv.data.vectors.word_vectors import Vectors

TOPICS = [["wave", "fish", "boat", "salt", "tide"], ["cloud", "wind", "bird", "star", "moon"]]


def topics(lines: int = 400, mixed: bool = False) -> list[str]:
    """Lines of one topic each, or of both, the words in any order."""
    random = Random(0)
    groups = [[*TOPICS[0], *TOPICS[1]]] if mixed else TOPICS
    return [" ".join(random.choices(random.choice(groups), k=8)) for _ in range(lines)]


def apart(vectors: Vectors) -> float:
    """Mean cosine within a topic less that between topics."""
    groups = [[vectors.unit[vectors.index[word]] for word in group] for group in TOPICS]
    inner = np.mean([a @ b for g in groups for i, a in enumerate(g) for b in g[:i]])
    return float(inner - np.mean([a @ b for a in groups[0] for b in groups[1]]))


# -- text -------------------------------------------------------------------------------------------------------------


def test_a_corpus_numbers_words_by_frequency_and_takes_out_rare_ones() -> None:
    corpus = Corpus.of(["b a b c", "", "A b a"], min_count=2)
    assert corpus.words == ("b", "a") and corpus.counts.tolist() == [3, 2]
    assert corpus.ids.tolist() == [0, 1, 0, 0, 1] and corpus.sentences.tolist() == [0, 0, 0, 2, 2]
    assert corpus.dropped == 2 and len(corpus) == 5
    lowered = Corpus.of(["b a b c", "", "A b a"], min_count=2, lowercase=True)
    assert lowered.words == ("a", "b") and lowered.counts.tolist() == [3, 3]


def test_files_are_one_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x y\n")
    (tmp_path / "b.txt").write_text("y x z\n")
    assert Corpus.read([tmp_path / "a.txt", tmp_path / "b.txt"], min_count=1).ids.tolist() == [0, 1, 1, 0, 2]


def test_a_text_without_words_enough_is_told() -> None:
    with pytest.raises(ValueError, match=r"0 of the text's 3 words occur 5 times or more.*lower min_count"):
        Corpus.of(["a b c"])
    with pytest.raises(ValueError, match="0 of the text's 0 words"):
        Corpus.of([])


def test_methods_are_made_by_name() -> None:
    assert method("skipgram", width=7, lr=None) == SkipGram(width=7)
    assert set(VectorMethod.kinds) == {"skipgram", "glove"}
    with pytest.raises(ValueError, match="did you mean 'glove'"):
        method("glov")
    with pytest.raises(ValueError, match="x_max"):
        method("skipgram", x_max=3)


# -- skip-gram --------------------------------------------------------------------------------------------------------


def test_windows_hold_the_pairs_of_the_definition() -> None:
    corpus = Corpus.of([" ".join(Random(i).choices("abcdefg", k=3 + 7 * i)) for i in range(9)], min_count=1)
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
    corpus = Corpus.of(["the " * 990, "a b c d e f g h i j"], min_count=1)
    keep = dict(zip(corpus.words, SkipGram(subsample=0.01)._keep(corpus).tolist(), strict=True))
    assert keep["the"] == pytest.approx(np.sqrt(0.01 / 0.99) + 0.01 / 0.99)
    assert keep["a"] == 1
    assert SkipGram(subsample=0)._keep(corpus).tolist() == [1.0] * 11
    assert SkipGram(width=2, subsample=1e-15).train(corpus).array.shape == (11, 2)  # hardly a word is left of it


# -- GloVe ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=9), min_size=1, max_size=5), st.integers(1, 4))
def test_cooccurrences_are_those_of_the_definition(lines: list[list[str]], window: int) -> None:
    lines = [*lines, ["a", "b"]]
    corpus = Corpus.of(map(" ".join, lines), min_count=1)
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
    corpus = Corpus.of(topics(40), min_count=1)
    whole = cooccurrences(corpus, 3)
    monkeypatch.setattr("qkv.data.vectors.glove._WORDS", 17)
    for a, b in zip(whole, cooccurrences(corpus, 3), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_step_is_adagrad_on_the_weighted_squares() -> None:
    fit = _Fit(5, 3, torch.Generator().manual_seed(0))
    fit.w.normal_()
    fit.c.normal_()
    fit.w[:, -1] = fit.c[:, -2] = 1
    i, j = torch.tensor([0, 3]), torch.tensor([1, 2])  # no row twice, so that a batch is what single steps are
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
        GloVe().train(Corpus.of(["a", "b"], min_count=1))


# -- both -------------------------------------------------------------------------------------------------------------

METHODS = [SkipGram(width=16, epochs=5, window=3, subsample=0), GloVe(width=16, epochs=10, window=3, x_max=10)]


@pytest.mark.parametrize("chosen", METHODS, ids=lambda chosen: chosen.kind)
def test_words_of_one_topic_come_to_lie_together(chosen: VectorMethod) -> None:
    seen: list[float] = []
    vectors = chosen.train(Corpus.of(topics()), progress=seen.append)
    assert vectors.array.shape == (10, 16) and apart(vectors) > 0.5
    assert abs(apart(chosen.train(Corpus.of(topics(mixed=True))))) < 0.2
    assert seen == sorted(seen) and seen[0] >= 0 and seen[-1] <= 1


@pytest.mark.parametrize("chosen", METHODS, ids=lambda chosen: chosen.kind)
def test_the_seed_decides(chosen: VectorMethod) -> None:
    corpus = Corpus.of(topics(60))
    first, again, other = (chosen.train(corpus, seed=seed).array for seed in (3, 3, 4))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
