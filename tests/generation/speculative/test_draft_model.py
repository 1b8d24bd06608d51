"""Draft models: their cache, their context, and how many tokens they propose."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import qkv
from qkv.generation import generate

PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9]]


def small(seed: int, **sizes: Any) -> Any:
    spec = qkv.preset("gpt2", vocab_size=13, d_model=16, n_layers=2, n_heads=2, **sizes)
    model = qkv.build(spec, dtype=torch.float64, seed=seed).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model


def test_a_perfect_draft_is_accepted_always() -> None:
    """Also if rows have fewer tokens left than the draft proposes, and in sampling if q is p."""
    model = small(0)
    for sampling in ({}, {"temperature": 1.3, "top_k": 6, "seed": 2}):
        out = generate(model, PROMPTS, draft=model, max_new_tokens=19, **sampling)
        for counts in out.acceptance:
            assert (counts[0].passes, counts[0].proposed, counts[0].accepted) == (4, 15, 15)


@pytest.mark.parametrize("tokens", [1, 2, 7])
def test_the_number_of_proposed_tokens(tokens: int) -> None:
    model = small(0)
    out = generate(
        model, [[1, 2]], draft=model, speculate={"kind": "draft", "num_speculative_tokens": tokens}, max_new_tokens=29
    )
    assert out.best == generate(model, [[1, 2]], max_new_tokens=29).best
    assert out.acceptance[0][0].passes == 1 + -(-28 // (tokens + 1))


@pytest.mark.parametrize("context", [6, 9, 14])
def test_beyond_the_drafts_context_the_model_continues_alone(context: int) -> None:
    model, draft = small(0), small(0, max_positions=context)
    out = generate(model, PROMPTS, draft=draft, max_new_tokens=20)
    assert out.best == generate(model, PROMPTS, max_new_tokens=20).best
    assert all(counts[0].proposed <= context + 1 for counts in out.acceptance)


def test_draft_and_model_are_left_as_they_were() -> None:
    model, draft = small(0).train(), small(1).train()
    generate(model, PROMPTS, draft=draft, max_new_tokens=5)
    assert model.training and draft.training


def test_drafts_of_encoder_decoders() -> None:
    def translator(seed: int, layers: int) -> Any:
        spec = qkv.preset("transformer-base", vocab_size=13, d_model=16, n_layers=layers, n_heads=2, d_ff=24)
        return qkv.build(spec, dtype=torch.float64, seed=seed).eval()

    model, draft = translator(0, 2), translator(1, 1)
    options: dict[str, Any] = {"bos_id": 1, "eos_id": 2, "max_new_tokens": 15}
    assert generate(model, PROMPTS, draft=draft, **options).best == generate(model, PROMPTS, **options).best
    other = qkv.build(
        qkv.preset("transformer-base", vocab_size=13, d_model=16, n_layers=1, n_heads=2).replace(
            {"source_vocab_size": 14, "tie_embeddings": False}
        )
    )
    with pytest.raises(ValueError, match="reads sources of a vocabulary of 14 and the model of one of 13"):
        generate(model, PROMPTS, draft=other, **options)
