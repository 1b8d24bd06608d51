"""Speculative search gives what plain search gives: over families, caches, processors, batches, stops and lengths."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from fast_subset import fast

import qkv
from qkv.generation import generate, trace
from qkv.io.families import presets
from qkv.nn.kv_cache.kinds import PagedCache

DECODERS = (
    *("gpt2", "openai-gpt", "starcoder", "pythia-160m", "bloom-560m", "llama-3-8b", "mistral-7b", "qwen3-0.6b"),
    *("gemma-2-2b", "gemma-3-270m", "smollm3-3b", "phi-3-mini", "falcon-7b", "mpt-7b", "olmo-2-1b", "granite-3.1-2b"),
    *("mixtral-8x7b", "qwen1.5-moe-a2.7b"),
)
TRANSLATORS = ("transformer-base", "bart-base", "opus-mt", "t5-small")
PROMPTS = [[4, 5, 6, 4, 5, 6, 4], [9], [10, 11, 12], [1, 2, 1, 2]]
VOCAB = 31


def small(name: str) -> torch.nn.Module:
    """A tiny model of a family in float64, with parameters moved far enough that its outputs vary."""
    known = inspect.signature(presets()[name][0]).parameters
    usual = {"d_ff": 48, "d_head": 8, "n_kv_heads": 2, "window": 6, "n_experts": 4, "query_width": 8, "d_inner": 48}
    sizes = {size: value for size, value in usual.items() if size in known}
    spec = qkv.preset(name, vocab_size=VOCAB, d_model=32, n_heads=4, n_layers=3, **sizes)
    model = qkv.build(spec, dtype=torch.float64, seed=0).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator).to(parameter.dtype))
    return model


def check(model: torch.nn.Module, options: dict[str, Any], drafts: list[Any]) -> None:
    plain = generate(model, PROMPTS, **options)
    for draft in drafts:
        speculation = {"speculate": draft} if isinstance(draft, str | dict) else {"draft": draft}
        out = generate(model, PROMPTS, **options, **speculation)
        assert out.sequences == plain.sequences, draft
        assert out.reasons == plain.reasons and out.notes == plain.notes
        assert out.acceptance is not None and plain.acceptance is None
        for sequences, counts in zip(out.sequences, out.acceptance, strict=True):
            for tokens, count in zip(sequences, counts, strict=True):
                rest = count.passes + count.accepted - len(tokens)  # 1 if an accepted token ends the row
                assert rest in (0, 1) and count.accepted <= count.proposed


@pytest.mark.parametrize("name", fast(DECODERS, *DECODERS[::3]))
def test_a_decoder_says_the_same(name: str) -> None:
    model = small(name)
    options = {"max_new_tokens": 25, "eos_id": 3}
    check(model, options, ["lookup", "early-exit:1", model])


@pytest.mark.parametrize("name", TRANSLATORS)
def test_an_encoder_decoder_says_the_same(name: str) -> None:
    model = small(name)
    options = {"max_new_tokens": 25, "eos_id": 3, "bos_id": 2}
    check(model, options, ["lookup", "early-exit:1", model])


WAYS = ("lookup", "early-exit:1", {"kind": "lookup", "num_speculative_tokens": 3, "max_ngram": 2})
OPTIONS: dict[str, dict[str, Any]] = {
    "a repetition penalty": {"repetition_penalty": 1.3},
    "no repeated n-grams": {"no_repeat_ngram_size": 3},
    "a minimum length": {"eos_id": list(range(15)), "min_new_tokens": 9},
    "pages": {"cache": PagedCache(page=3)},
    "a processor of ids and one without": {"repetition_penalty": 1.2, "top_k": 5, "do_sample": False},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_greedy_outputs_are_the_same_with(options: dict[str, Any]) -> None:
    model, draft = small("llama-3-8b"), small("gpt2")
    check(model, {"max_new_tokens": 24, **options}, [*WAYS, draft, model])


@pytest.mark.parametrize("sampling", [{"temperature": 0.7}, {"top_k": 4}, {"top_p": 0.8, "repetition_penalty": 1.2}])
def test_samples_with_look_up_match_the_same_seed_without_it(sampling: dict[str, Any]) -> None:
    check(small("gpt2"), {"max_new_tokens": 24, "seed": 5, "num_samples": 2, **sampling}, ["lookup"])


def test_a_row_of_a_batch_gets_what_it_gets_alone() -> None:
    model, draft = small("gpt2"), small("llama-3-8b")
    for options in ({"draft": draft}, {"speculate": "lookup"}, {"speculate": "early-exit:2"}):
        for sampling in ({}, {"temperature": 1.0}):
            together = generate(model, PROMPTS, seeds=[3, 4, 5, 6], max_new_tokens=20, **options, **sampling)
            for i, prompt in enumerate(PROMPTS):
                alone = generate(model, [prompt], seeds=[3 + i], max_new_tokens=20, **options, **sampling)
                assert alone.best[0] == together.best[i]
                assert alone.acceptance == [together.acceptance[i]]


@pytest.mark.parametrize("limit", range(1, 9))
def test_the_length_ends_a_row_inside_a_block(limit: int) -> None:
    model = small("gpt2")
    check(model, {"max_new_tokens": limit}, ["lookup", model])


def test_stops_end_a_row_inside_a_block() -> None:
    model = small("gpt2")
    free = generate(model, PROMPTS, max_new_tokens=20).best
    for n in range(1, 8):
        check(model, {"max_new_tokens": 20, "stop": lambda tokens, n=n: tokens[-1] == free[0][n]}, ["lookup", model])
        check(model, {"max_new_tokens": 20, "eos_id": free[1][n]}, ["lookup", model])


def test_the_end_of_the_context_ends_a_row() -> None:
    spec = qkv.preset("gpt2", vocab_size=VOCAB, d_model=32, n_heads=4, n_layers=2, max_positions=20)
    model = qkv.build(spec, dtype=torch.float64, seed=1).eval()
    check(model, {"max_new_tokens": 40}, ["lookup", "early-exit:1", model])
    assert generate(model, PROMPTS, max_new_tokens=40, speculate="lookup").notes


def test_tokens_are_streamed_and_scored() -> None:
    model, streamed = small("gpt2"), []
    options: dict[str, Any] = {"max_new_tokens": 15, "scores": True, "length_penalty": 0.5, "eos_id": 3}
    plain = generate(model, PROMPTS, **options)
    out = generate(
        model, PROMPTS, speculate="lookup", stream=lambda row, token: streamed.append((row, token)), **options
    )
    assert [[token for row, token in streamed if row == i] for i in range(len(PROMPTS))] == out.best == plain.best
    assert out.log_probs is not None and plain.log_probs is not None
    for got, expected in zip(out.log_probs, plain.log_probs, strict=True):
        assert got[0] == pytest.approx(expected[0], abs=1e-5)
    assert [row[0] for row in out.scores] == pytest.approx([row[0] for row in plain.scores], abs=1e-5)


def test_a_row_ends_where_no_token_is_allowed() -> None:
    model = small("gpt2")
    for way in ({"speculate": "lookup"}, {"draft": model}):
        for sampling in ({}, {"do_sample": True, "seed": 0}):
            out = generate(model, [[1], [2, 3]], no_repeat_ngram_size=1, max_new_tokens=60, **way, **sampling)
            assert [sorted(row) for row in out.best] == [
                sorted({*range(VOCAB)} - {1}),
                sorted({*range(VOCAB)} - {2, 3}),
            ]
            assert out.reasons == [["stuck"], ["stuck"]]


def test_the_choices_are_recorded() -> None:
    model, options = small("gpt2"), {"max_new_tokens": 10, "top_k": 3, "seed": 1, "repetition_penalty": 1.1}
    with trace.record() as plain:
        tokens = generate(model, PROMPTS, **options).best[0]
    with trace.record() as search:
        assert generate(model, PROMPTS, speculate="lookup", **options).best[0] == tokens
    assert [choice.token for choice in search.choices] == tokens
    for choice, expected in zip(search.choices, plain.choices, strict=True):
        assert [(stage.name, stage.tokens) for stage in choice.stages] == [
            (stage.name, stage.tokens) for stage in expected.stages
        ]
