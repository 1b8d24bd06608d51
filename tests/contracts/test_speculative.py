"""speculative = plain: greedy decoding with any proposer gives the tokens and log-probabilities that it gives without one.

Samples are others but equally distributed, which tests/generation/speculative/test_verification.py tests; here they are
drawn from one token each, by `top_k=1`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from axes import BLOCKS, DECODERS, HEADS, SPECULATIONS, Example, backends, named, patterns, positions, sees_ahead, words
from selection import Combination, Contract
from small import model

from qkv.generation import generate

PROMPTS = [[5, 2, 9, 5], [3, 8, 3, 8, 3, 8], [1, 16, 4, 4, 7]]  # as long as the prefixes of patterns, or longer
LENGTH = 9
WAYS: Mapping[str, dict[str, Any]] = {
    "greedy": {},
    "ended": {"eos_id": 4},
    "processed": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    "samples": {"temperature": 0.8, "top_k": 1, "num_samples": 2, "seed": 1},
}


def senseless(case: Combination) -> str | None:
    if sees_ahead(case.pattern, min(map(len, PROMPTS))):
        return "the pattern sees what comes later, so it can't be decoded step by step"
    return None


def contract() -> Contract:
    axes: dict[str, list[Example]] = {
        "pattern": patterns(),
        "position": positions(),
        "kind": named(SPECULATIONS),
        "way": named(WAYS),
        "cache": words("full", "paged"),
        "family": words(*DECODERS),
        "backend": backends(),
        "heads": named(HEADS),
        "block": named(BLOCKS),
    }
    return Contract(axes, senseless, turned=["backend", "heads", "block"], fast=1, whole=2)


@pytest.mark.contract(contract())
def test_speculation_keeps_the_outputs_of_the_model(case: Combination) -> None:
    parts = (case.pattern, case.position, case.backend, case.heads, case.block)
    built = model(case.family, *parts)
    draft = model(case.family, *parts, layers=1, seed=1) if case.kind is SPECULATIONS["draft"] else None
    options = {"max_new_tokens": LENGTH, "scores": True, "cache": case.cache, **case.way}
    sources = PROMPTS
    if case.family == "encoder-decoder":
        sources, options["target"] = [[2, 7], [8, 3, 8, 1], [4, 4, 7]], PROMPTS
    wanted = generate(built, sources, **options)
    found = generate(built, sources, speculate=case.kind, draft=draft, **options)
    assert found.sequences == wanted.sequences
    assert found.reasons == wanted.reasons
    assert found.scores is not None and wanted.scores is not None and found.acceptance is not None
    for mine, others in zip(found.scores, wanted.scores, strict=True):
        assert mine == pytest.approx(others, abs=1e-8)
    for samples, counts in zip(found.sequences, found.acceptance, strict=True):
        for tokens, count in zip(samples, counts, strict=True):
            assert count.accepted <= count.proposed
            assert len(tokens) - count.accepted <= count.passes <= len(tokens) - count.accepted + 1  # each adds one
