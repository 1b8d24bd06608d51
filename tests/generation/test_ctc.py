"""Decoding of CTC beside the sum over all alignments."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import pytest
import torch

from qkv.generation.ctc import WordFusion, collapsed, greedy, prefix_beam_search, spelled


def likelihoods(log_probs: torch.Tensor, blank: int) -> dict[tuple[int, ...], float]:
    """The probability of each text, by summing over all alignments."""
    texts: dict[tuple[int, ...], float] = defaultdict(float)
    for path in itertools.product(range(log_probs.shape[1]), repeat=len(log_probs)):
        p = math.exp(sum(log_probs[t, symbol].item() for t, symbol in enumerate(path)))
        texts[tuple(collapsed(path, blank))] += p
    return texts


def test_repeats_are_merged_before_blanks_are_removed() -> None:
    assert collapsed([0, 1, 1, 0, 1, 2, 2, 0], 0) == [1, 1, 2]
    assert spelled([0, 1, 1, 0, 1], 0) == [(1, 1, 2), (1, 4, 4)]
    logits = torch.nn.functional.one_hot(torch.tensor([[1, 1, 0, 1], [2, 2, 1, 1]]), 3).float()
    assert greedy(logits, (4, 2), 0) == [[1, 1], [2]]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("blank", [0, 2])
def test_wide_beams_find_the_exact_likelihood_of_every_text(seed: int, blank: int) -> None:
    drawn = torch.Generator().manual_seed(seed)
    log_probs = (2 * torch.randn(5, 3, generator=drawn, dtype=torch.float64)).log_softmax(-1)
    exact = likelihoods(log_probs, blank)
    found = prefix_beam_search(log_probs, blank, beams=1000, least=-math.inf)
    assert {one.symbols for one in found} == exact.keys()
    assert all(one.log_probability == pytest.approx(math.log(exact[one.symbols]), abs=1e-9) for one in found)
    assert found[0].symbols == max(exact, key=lambda text: exact[text])


def test_a_language_model_changes_the_choice() -> None:
    log_probs = torch.tensor([[0.05, 0.5, 0.45], [0.9, 0.05, 0.05]], dtype=torch.float64).log()

    def prefers_two(symbols: tuple[int, ...], ended: bool) -> float:
        return float(2 in symbols)

    plain, helped = prefix_beam_search(log_probs, 0), prefix_beam_search(log_probs, 0, score=prefers_two)
    assert plain[0].symbols == (1,) and helped[0].symbols == (2,)
    assert helped[0].score == pytest.approx(helped[0].log_probability + 1)


def test_words_are_scored_once_they_are_complete() -> None:
    letters = {1: "a", 2: "b", 3: " "}
    fusion = WordFusion(
        lambda symbols: "".join(letters[s] for s in symbols),
        lambda words, ended: -float(len(words)),
        weight=0.5,
        bonus=2.0,
    )
    assert fusion((1, 2), False) == 0.0
    assert fusion((1, 2, 3), False) == 1.5
    assert fusion((1, 2, 3, 1), False) == 1.5
    assert fusion((1, 2, 3, 1), True) == 3.0


@pytest.mark.parametrize("seed", range(3))
def test_shallow_fusion_finds_what_the_sum_over_all_texts_finds(seed: int) -> None:
    letters = {1: "a", 2: "b", 3: " "}
    drawn = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(5, 4, generator=drawn, dtype=torch.float64).log_softmax(-1)
    odds = {"a": 0.5, "b": 0.1, "ab": 0.3}

    def decode(symbols: tuple[int, ...]) -> str:
        return "".join(letters[s] for s in symbols)

    def log_p(words: tuple[str, ...], ended: bool) -> float:
        return sum(math.log(odds.get(word, 0.02)) for word in words) + (math.log(0.2) if ended else 0.0)

    exact = {
        text: math.log(p) + 1.5 * log_p(tuple(decode(text).split()), True) + 0.7 * len(decode(text).split())
        for text, p in likelihoods(log_probs, 0).items()
    }
    fusion = WordFusion(decode, log_p, weight=1.5, bonus=0.7)
    found = prefix_beam_search(log_probs, 0, beams=5000, score=fusion, least=-math.inf)
    assert {one.symbols: one.score for one in found} == pytest.approx(exact, abs=1e-9)
    assert found[0].symbols == max(exact, key=lambda text: exact[text])


def test_no_beams_are_refused() -> None:
    with pytest.raises(ValueError, match="beams is 0"):
        prefix_beam_search(torch.zeros(1, 2), 0, beams=0)
