"""Each processor against its definition in plain Python."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.generation.logits_processors import MinNewTokens, NoRepeatNGram, RepetitionPenalty, processors_for
from qkv.generation.sampling import MinP, Temperature, TopK, TopP
from qkv.generation.settings import Generation

INF = math.inf
rows = st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=12, unique=True)
NO_IDS = torch.empty(1, 0, dtype=torch.long)


def kept(logits: torch.Tensor) -> set[int]:
    return {i for i, x in enumerate(logits[0].tolist()) if x > -INF}


@given(rows, st.integers(1, 15))
@settings(deadline=None, max_examples=50)
def test_top_k_keeps_the_k_likeliest(row: list[float], k: int) -> None:
    best = sorted(range(len(row)), key=lambda i: -row[i])[:k]
    assert kept(TopK(k)(NO_IDS, torch.tensor([row]))) == set(best)


@given(rows, st.floats(0.05, 0.99))
@settings(deadline=None, max_examples=100)
def test_top_p_keeps_the_smallest_head_that_reaches_p(row: list[float], p: float) -> None:
    logits = torch.tensor([row], dtype=torch.float64)
    probs = logits.softmax(-1)[0].tolist()
    order = sorted(range(len(row)), key=lambda i: -probs[i])
    count = next(n for n in range(1, len(row) + 1) if n == len(row) or sum(probs[i] for i in order[:n]) >= p - 1e-12)
    assert kept(TopP(p)(NO_IDS, logits)) == {i for i in order if probs[i] >= probs[order[count - 1]]}


def test_top_p_keeps_the_likeliest_however_small_p_is() -> None:
    assert kept(TopP(1e-12)(NO_IDS, torch.tensor([[0.0, 3.0, 1.0]]))) == {1}


@given(rows, st.floats(0.0, 1.0))
@settings(deadline=None, max_examples=50)
def test_min_p_is_relative_to_the_likeliest(row: list[float], p: float) -> None:
    logits = torch.tensor([row], dtype=torch.float64)
    probs = logits.softmax(-1)[0].tolist()
    assert kept(MinP(p)(NO_IDS, logits)) == {i for i, x in enumerate(probs) if x >= p * max(probs)}


def test_temperature_sharpens_and_never_overflows() -> None:
    logits = torch.tensor([[1.0, 2.0, 4.0]])
    assert torch.allclose(Temperature(0.5)(NO_IDS, logits).softmax(-1), (2 * logits).softmax(-1))
    assert Temperature(1e-38)(NO_IDS, logits).softmax(-1).tolist() == [[0.0, 0.0, 1.0]]


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits_once() -> None:
    ids = torch.tensor([[1, 1, 2], [-1, -1, 0]])
    logits = torch.tensor([[3.0, 3.0, -3.0, -3.0], [3.0, 3.0, -3.0, -3.0]])
    out = RepetitionPenalty(1.5)(ids, logits)
    assert out.tolist() == [[3.0, 2.0, -4.5, -3.0], [2.0, 3.0, -3.0, -3.0]]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=14), st.integers(1, 4), st.integers(0, 3))
@settings(deadline=None, max_examples=150)
def test_no_repeat_ngram_bans_what_would_repeat_one(tokens: list[int], n: int, padding: int) -> None:
    seen = {tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)}
    last = tuple(tokens[len(tokens) - n + 1 :]) if n > 1 else ()
    allowed = {t for t in range(4) if (*last, t) not in seen}
    ids = torch.tensor([[-1] * padding + tokens])
    assert kept(NoRepeatNGram(n)(ids, torch.zeros(1, 4))) == allowed


def test_min_new_tokens_forbids_every_eos_until_then() -> None:
    forbid = MinNewTokens(width=5, eos=(0, 2))
    assert kept(forbid(torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, 4))) == {1, 3}
    assert kept(forbid(torch.zeros(1, 5, dtype=torch.long), torch.zeros(1, 4))) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "process",
    [RepetitionPenalty(1.3), NoRepeatNGram(2), MinNewTokens(99, (1,)), Temperature(0.3), TopK(3), TopP(0.6), MinP(0.2)],
)
def test_rows_are_apart_and_arguments_untouched(process) -> None:
    torch.manual_seed(0)
    logits, ids = torch.randn(5, 11), torch.randint(0, 11, (5, 9))
    before = logits.clone(), ids.clone()
    out = process(ids, logits)
    assert torch.equal(logits, before[0]) and torch.equal(ids, before[1])
    for i in range(5):
        assert torch.equal(process(ids[i : i + 1], logits[i : i + 1])[0], out[i])


def test_the_order_is_the_documented_one() -> None:
    everything = Generation(
        repetition_penalty=1.1, no_repeat_ngram_size=2, min_new_tokens=3, temperature=0.5, top_k=5, top_p=0.9, min_p=0.1
    )
    own = RepetitionPenalty(2.0)
    chain = processors_for(everything, [1], 4, [own])
    assert [type(p) for p in chain] == [
        RepetitionPenalty,
        NoRepeatNGram,
        MinNewTokens,
        RepetitionPenalty,
        Temperature,
        TopK,
        TopP,
        MinP,
    ]
    assert chain[3] is own
    assert chain[2] == MinNewTokens(7, (1,))
    greedy = processors_for(everything.replace({"do_sample": False}), [1], 4)
    assert [type(p) for p in greedy] == [RepetitionPenalty, NoRepeatNGram, MinNewTokens]
    assert processors_for(Generation(do_sample=True, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0), [1], 4) == []
