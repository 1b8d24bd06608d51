"""A step of rows with a cache each: to the bit what each row gives alone, and what the model gives without it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fused_models import varied_model

import qkv
from qkv.generation.model_interface import evaluating
from qkv.nn.models.fused_step.rows import FusedRows, RowCache
from qkv.nn.models.transformer import TransformerModel
from qkv.nn.patterns.basic import Causal, Window

SIZES: dict[str, Any] = {"d_model": 32, "n_heads": 4, "n_layers": 2, "vocab_size": 90}
LENGTHS = (3, 33, 9, 1, 17, 40, 5, 12, 2)
WINDOW = Causal() & Window(size=16)
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "learned positions": ("gpt2", {"max_positions": 64}, {}),
    "rotary positions": ("llama", {"max_positions": 64, "n_kv_heads": 2}, {}),
    "a ring buffer": ("llama", {"max_positions": 64}, {"*.attention.pattern": WINDOW}),
    "two windows": ("gemma-3-1b", {"max_positions": 64, "n_kv_heads": 2, "d_head": 8, "d_ff": 48}, {}),
    "an encoder–decoder": ("transformer", {}, {}),
    "ALiBi": ("gpt", {"position": "alibi"}, {}),
    "ALiBi in bf16": ("gpt", {"position": {"kind": "alibi", "precision": "bfloat16"}}, {}),
    "relative positions of T5": ("t5-small", {"d_ff": 48, "d_head": 8}, {}),
    "experts": ("mixtral-8x7b", {"max_positions": 64, "n_kv_heads": 2, "d_ff": 24}, {}),
    "capped scores": ("gemma-2-2b", {"max_positions": 64, "n_kv_heads": 2, "d_head": 8, "d_ff": 48}, {}),
}


def model_of(name: str, dtype: torch.dtype = torch.float32) -> TransformerModel:
    preset, sizes, changes = MODELS[name]
    return varied_model(preset, SIZES | sizes, changes, dtype)


def prompts(model: TransformerModel) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.randint(0, model.vocab_size, (1, n), generator=random) for n in LENGTHS]


def begun(model: TransformerModel, prompt: torch.Tensor) -> tuple[Any, torch.Tensor]:
    if model.is_encoder_decoder:
        cache = model.start(source=prompt, capacity=4)  # so that the cache grows
        return cache, model.step(torch.tensor([[1]]), cache)
    cache = model.start(1, capacity=prompt.shape[1] + 2)
    return cache, model.step(prompt, cache)


def decoded(model: TransformerModel, rows: FusedRows, chosen: list[int], steps: int = 8) -> list[list[torch.Tensor]]:
    """The logits of each of some prompts, greedily decoded together."""
    every = prompts(model)
    with evaluating(model):
        caches, first = zip(*(begun(model, every[i]) for i in chosen), strict=True)
        assert all(rows.takes(cache) for cache in caches) and rows.ready()
        held, tokens = [RowCache(cache) for cache in caches], torch.stack([x[0].float().argmax() for x in first])
        found: list[list[torch.Tensor]] = [[] for _ in chosen]
        for _ in range(steps):
            logits = rows.step(tokens, held)
            tokens = logits.float().argmax(-1)
            for own, row in zip(found, logits, strict=True):
                own.append(row)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_row_is_to_the_bit_what_it_is_alone(name: str) -> None:
    model = model_of(name)
    rows = FusedRows(model)
    assert rows.serves
    together = decoded(model, rows, list(range(len(LENGTHS))))
    for some in ([0], [1], [5, 3], [8, 2, 6, 0]):
        for i, alone in zip(some, decoded(model, rows, some), strict=True):
            assert all(torch.equal(a, b) for a, b in zip(alone, together[i], strict=True))
    assert not torch.equal(together[0][0], together[1][0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_a_row_gives_what_the_model_gives_step_by_step(name: str, dtype: torch.dtype) -> None:
    model = model_of(name, dtype)
    together = decoded(model, FusedRows(model), [1, 4, 0])
    tolerance = 1e-5 if dtype == torch.float32 else 0.1
    with evaluating(model):
        for i, own in zip([1, 4, 0], together, strict=True):
            cache, logits = begun(model, prompts(model)[i])
            for row in own:
                logits = model.step(logits.float().argmax(-1)[:, None], cache)
                assert torch.allclose(logits[0].float(), row.float(), rtol=tolerance, atol=tolerance * 5)
                logits = row[None]


@pytest.mark.parametrize(
    "options",
    [
        {"weights": "int8"},
        {"weights": "int8", "activations": "int8"},
        {"weights": "int4", "group_size": 32},
        {"weights": "int4", "group_size": 32, "activations": "int8"},
    ],
)
def test_quantized_rows_do_not_depend_on_others(options: dict[str, Any]) -> None:
    model = qkv.Run(varied_model("gpt2", SIZES | {"d_model": 64, "max_positions": 64}, {}), None)
    quantized: Any = model.quantize(options.pop("weights"), method="rtn", **options).model
    rows = FusedRows(quantized)
    assert rows.serves
    together = decoded(quantized, rows, 2 * list(range(len(LENGTHS))))  # enough for panels
    for i in (0, 5):
        alone = decoded(quantized, rows, [i])[0]
        assert all(torch.equal(a, b) for a, b in zip(alone, together[i], strict=True))


def test_a_row_goes_on_after_the_model_stepped_it() -> None:
    """Rows leave the step for another one, and come back."""
    model = model_of("rotary positions")
    rows = FusedRows(model)
    with evaluating(model):
        cache, logits = begun(model, prompts(model)[0])
        twin, _ = begun(model, prompts(model)[0])
        held = RowCache(cache)
        for step in range(70 - 40):
            token = logits.argmax(-1)
            want = model.step(token[:, None], twin)
            logits = rows.step(token, [held]) if step % 3 else model.step(token[:, None], cache)
            assert torch.allclose(logits, want, atol=1e-4)


def test_a_row_can_begin_with_an_empty_cache() -> None:
    """The first token of a translation needs no step of its own."""
    model = model_of("an encoder–decoder")
    rows, every = FusedRows(model), prompts(model)[:3]
    with evaluating(model):
        caches, twins = ([model.start(source=prompt, capacity=4) for prompt in every] for _ in range(2))
        held, token = [RowCache(cache) for cache in caches], torch.tensor([1, 1, 1])
        for _ in range(70):  # more than the first buffers hold
            together = rows.step(token, held)
            for i, twin in enumerate(twins):
                assert torch.allclose(model.step(token[i : i + 1, None], twin)[0], together[i], atol=1e-4)
            token = together.argmax(-1)


def test_what_the_kernels_do_not_have_is_left_to_the_model() -> None:
    windowed = FusedRows(varied_model("gpt", SIZES | {"position": "alibi"}, {"*.attention.pattern": WINDOW}))
    assert not windowed.serves and windowed.reason == "a bias on scores in a window"
    model = model_of("learned positions")
    rows = FusedRows(model)
    ring = model_of("a ring buffer")
    assert rows.takes(model.start(1))
    assert not FusedRows(ring).takes(ring.start(1))  # its ring buffer is not there before the first step
    quantized = model.start(1, cache="int8")
    with evaluating(model):
        model.step(torch.tensor([[1, 2, 3]]), quantized)
    assert not rows.takes(quantized)
    assert not rows.ready()  # with gradients
