"""Beam search: against Hugging Face's recorded outputs, exhaustive enumeration, and each prompt on its own."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch

from qkv.generation import generate
from qkv.generation.beam_search import best_continuations

GOLDEN = json.loads(Path(__file__).with_name("beam_golden.json").read_text())


def test_hugging_faces_outputs_token_for_token(table) -> None:
    """beam_golden.json is written by make_beam_golden.py; every case is 2 prompts × 4 hypotheses."""
    for case in GOLDEN["cases"]:
        options = dict(case)
        (vocab, seed), eos = options.pop("table"), options.pop("eos")
        sequences, scores = options.pop("sequences"), options.pop("scores")
        out = generate(table(vocab, order=2, seed=seed), GOLDEN["prompts"], eos_id=eos, **options)
        assert out.scores is not None
        assert [tokens for row in out.sequences for tokens in row] == sequences, options
        assert [s for row in out.scores for s in row] == pytest.approx(scores, abs=2e-4), options


@pytest.mark.parametrize("penalty", [0.0, 1.0, 1.7])
def test_a_wide_enough_beam_finds_the_best_of_all(table, penalty: float) -> None:
    """5 tokens, up to 4 of them: 4³ prefixes never overflow 64 beams, so the search is exhaustive."""
    model, eos, longest = table(5, order=2, seed=7), 0, 4
    log_probs = model.logits.double().log_softmax(-1)

    def score(tokens: tuple[int, ...]) -> float:
        steps = zip((2, 3, *tokens), (3, *tokens), tokens, strict=False)
        return sum(float(log_probs[step]) for step in steps) / len(tokens) ** penalty

    complete = [
        (*body, last)
        for n in range(longest)
        for body in itertools.product(range(1, 5), repeat=n)
        for last in ([0] if n < longest - 1 else range(5))
    ]
    best = sorted(complete, key=score, reverse=True)[:6]
    out = generate(
        model,
        [[2, 3]],
        eos_id=eos,
        num_beams=64,
        num_samples=6,
        max_new_tokens=longest,
        length_penalty=penalty,
        early_stopping="never",
    )
    assert [tuple(tokens) for tokens in out.sequences[0]] == best
    assert out.scores is not None
    assert out.scores[0] == pytest.approx([score(tokens) for tokens in best], abs=1e-5)


def test_one_beam_more_finds_what_greedy_misses(fixed) -> None:
    # 0 → 1 (0.6) → 3 or 4 about evenly; 0 → 2 (0.4) → 3 for certain
    model = fixed([[0, 0.6, 0.4, 0, 0], [0, 0, 0, 0.6, 0.4], [0, 0, 0, 1, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]])
    assert generate(model, [[0]], max_new_tokens=2).best == [[1, 3]]
    out = generate(model, [[0]], max_new_tokens=2, num_beams=2, num_samples=2, length_penalty=0.0)
    assert out.sequences == [[[2, 3], [1, 3]]]


def test_several_eos_tokens_leave_candidates_to_run_on(fixed) -> None:
    # four likelier ends hide the way over 5, which scores log 0.12 / 2 against log 0.3
    end = [1.0, 0, 0, 0, 0, 0]
    model = fixed([end, end, end, end, [0.3, 0.25, 0.2, 0.13, 0, 0.12], end])
    out = generate(model, [[4]], eos_id=[0, 1, 2, 3], num_beams=2, max_new_tokens=2, early_stopping="never")
    assert out.best == [[5, 0]]


@pytest.mark.parametrize("early", [False, True, "never"])
@pytest.mark.parametrize("encoder_decoder", [False, True])
def test_a_prompt_in_a_batch_is_the_prompt_alone(tiny, early, encoder_decoder: bool) -> None:
    model = tiny(encoder_decoder=encoder_decoder)
    prompts = [[4, 5, 6, 7, 8], [9], [10, 11, 12], [3, 3], [20]]
    options = {
        "num_beams": 4,
        "num_samples": 4,
        "eos_id": [2, 13],
        "bos_id": 1,
        "max_new_tokens": 12,
        "early_stopping": early,
        "no_repeat_ngram_size": 2,
        "scores": True,
    }
    together = generate(model, prompts, **options)
    for i, prompt in enumerate(prompts):
        alone = generate(model, [prompt], **options)
        assert alone.sequences[0] == together.sequences[i]
        assert alone.scores is not None and together.scores is not None
        assert alone.scores[0] == pytest.approx(together.scores[i], abs=1e-5)
    lengths = {len(tokens) for row in together.sequences for tokens in row}
    assert len(lengths) > 1  # or rows that leave early were not tested


def test_a_prompt_that_is_done_leaves_the_batch(fixed) -> None:
    # from 1 everything ends at once; 2 … 5 lead on for a long time
    sure = [0.97, 0.01, 0.02, 0.0, 0.0, 0.0]
    model = fixed([sure, sure, [0, 0, 0, 0.5, 0.3, 0.2], [0, 0, 0.2, 0.3, 0.5, 0], [0, 0, 0.3, 0.3, 0, 0.4], [0.1] * 6])
    generate(model, [[1], [2]], eos_id=0, num_beams=2, max_new_tokens=8, early_stopping=True)
    assert model.rows_fed[0] == 2 and model.rows_fed[1] == 4 and model.rows_fed[-1] == 2


def test_the_cache_follows_the_beams(tiny) -> None:
    """Scores are sums of the model's own log-probabilities of those tokens, so every state was the right one."""
    from qkv.generation import score

    model = tiny(encoder_decoder=True)
    sources = [[4, 5, 6], [7, 8, 9, 10]]
    out = generate(model, sources, bos_id=1, eos_id=2, num_beams=4, num_samples=4, max_new_tokens=10, scores=True)
    assert out.log_probs is not None and out.scores is not None
    for source, sequences, log_probs in zip(sources, out.sequences, out.log_probs, strict=True):
        again = score(model, [source] * 4, sequences, bos_id=1)
        for given, expected in zip(log_probs, again.log_probs, strict=True):
            assert given == pytest.approx(expected, abs=1e-5)


def test_stop_finishes_hypotheses(table) -> None:
    out = generate(
        table(8, seed=2), [[1], [5]], num_beams=3, num_samples=3, max_new_tokens=12, stop=lambda t: sum(t) >= 15
    )
    for row, reasons in zip(out.sequences, out.reasons, strict=True):
        for tokens, reason in zip(row, reasons, strict=True):
            assert reason == "stop" and sum(tokens) >= 15 and sum(tokens[:-1]) < 15


def test_hypotheses_are_different_and_in_order(table) -> None:
    out = generate(table(50, seed=4), [[1], [5]], num_beams=5, num_samples=5, eos_id=2, max_new_tokens=15)
    assert out.scores is not None
    for row, scores in zip(out.sequences, out.scores, strict=True):
        assert len({tuple(tokens) for tokens in row}) == 5
        assert scores == sorted(scores, reverse=True)


def test_fewer_hypotheses_than_asked_for_are_noted(fixed) -> None:
    model = fixed([[0, 1.0], [1.0, 0]])
    out = generate(model, [[0]], num_beams=3, num_samples=3, max_new_tokens=4)
    assert out.sequences == [[[1, 0, 1, 0], [], []]]
    assert "2 of 3" in out.notes[0]
    assert out.tensor(pad_id=1).tolist() == [[0, 1, 0, 1, 0], [0, 1, 1, 1, 1], [0, 1, 1, 1, 1]]


@pytest.mark.parametrize("vocab", [5, 4096, 4101, 9000])
def test_best_continuations_are_the_top_k(vocab: int) -> None:
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.randn(6, vocab, generator=generator)
    log_probs[:, -1] = 9.0  # the last, partial chunk holds the best
    scores = torch.tensor([[0.0, -1.0, -torch.inf], [-3.0, -0.5, -0.2]])
    for k in (2, 8):
        top, places = best_continuations(log_probs, scores, k)
        expected = (log_probs.view(2, 3, vocab) + scores[..., None]).flatten(1).topk(k)
        assert torch.equal(top, expected.values)
        assert torch.equal(places, expected.indices)
