"""Continuations of shared prompts have the scores that each has alone."""

from __future__ import annotations

import random

import pytest
import torch

import qkv
from qkv.generation.log_likelihood import score
from qkv.runs.leaderboards.shared_prompts import score_continuations

SIZES = {"n_layers": 2, "d_model": 32, "n_heads": 2, "vocab_size": 40}


@pytest.mark.parametrize("preset", ["gpt2", "llama", "bloom-560m", "transformer"])
def test_scores_are_those_of_each_pair_alone(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.runs.leaderboards.shared_prompts.SLOTS", 120)  # several batches
    model, draw = qkv.build(qkv.preset(preset, **SIZES), seed=0).eval(), random.Random(0)
    if model.is_encoder_decoder:
        with pytest.raises(ValueError, match="give both"):
            score_continuations(model, [[1]], [[2]])
        return
    prompts, targets = [], []
    for n in (1, 4, 7, 20, 3):
        prompt = [draw.randrange(40) for _ in range(n)]
        for length in (0, 1, 1, 5, 2):
            prompts.append(prompt)
            targets.append([draw.randrange(40) for _ in range(length)])
    shuffled = draw.sample(range(len(prompts)), len(prompts))
    prompts, targets = [prompts[i] for i in shuffled], [targets[i] for i in shuffled]
    found, wanted = score_continuations(model, prompts, targets), score(model, prompts, targets)
    assert found.likeliest == wanted.likeliest
    for a, b in zip(found.log_probs, wanted.log_probs, strict=True):
        assert a == pytest.approx(b, abs=2e-6)


def test_the_likeliest_token_is_marked() -> None:
    model = qkv.build(qkv.preset("gpt2", **SIZES), seed=0).eval()
    best = int(model(torch.tensor([[3, 4]]))[0, -1].argmax())
    scores = score(model, [[3, 4], [3, 4]], [[best], [(best + 1) % 40]])
    assert scores.likeliest == [[True], [False]]


def test_bad_rows_are_refused() -> None:
    model = qkv.build(qkv.preset("gpt2", max_positions=8, **SIZES), seed=0).eval()
    with pytest.raises(ValueError, match="row 1 has 9 tokens to read; the model's context is 8"):
        score_continuations(model, [[1], [1] * 7], [[1], [1, 1, 1]])
    with pytest.raises(ValueError, match="row 0 holds token 40"):
        score_continuations(model, [[40]], [[1]])
    with pytest.raises(ValueError, match="one target for each prompt"):
        score_continuations(model, [[1]], [])
