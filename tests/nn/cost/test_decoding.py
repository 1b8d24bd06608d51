"""Costs of a token and of a prompt: FLOPs as PyTorch counts them, weights and caches as models hold them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from qkv.io.families import preset
from qkv.nn.cost.accelerators import Accelerator
from qkv.nn.cost.decoding import Computation, prompt, read_by_step, token, token_without_cache
from qkv.nn.cost.kv_cache import cache_bytes
from qkv.nn.models.build import build

SMALL = {"vocab_size": 50, "d_model": 32, "n_layers": 2, "n_heads": 4}
DECODERS = {
    "gpt2": preset("gpt2", **SMALL, max_positions=64),
    "llama": preset("llama", **SMALL, n_kv_heads=2),
    "untied": preset("gpt2", **SMALL, max_positions=64).replace({"head.tied": False}),
    "gated": preset("llama", **SMALL, d_ff=48),
}
CONTEXT, SOURCE = 12, 9


@torch.no_grad()
def counted(run: object) -> int:
    with FlopCounterMode(display=False) as counter:
        run()  # type: ignore[operator]
    return counter.get_total_flops()


@torch.no_grad()
def step_flops(model: nn.Module, context: int, rows: int = 1) -> int:
    cache = (
        model.start(source=torch.ones(rows, SOURCE, dtype=torch.long))
        if model.is_encoder_decoder
        else model.start(rows)
    )
    model.step(torch.ones(rows, context - 1, dtype=torch.long), cache)
    return counted(lambda: model.step(torch.ones(rows, 1, dtype=torch.long), cache))


@pytest.mark.parametrize("name", DECODERS)
def test_the_flops_of_a_token(name: str):
    spec = DECODERS[name]
    model = build(spec.replace({"decoder.blocks.*.attention.backend": "reference"}), seed=0).eval()
    wanted = token(spec, CONTEXT, rows=3)
    assert wanted is not None
    norms = 3 * _norm_flops(spec)  # which PyTorch does not count
    assert wanted.flops - norms == step_flops(model, CONTEXT, rows=3)


def _norm_flops(spec: object) -> int:
    """What the cost model counts besides products of matrices, for one token."""
    with_products = spec.cost(1).flops  # type: ignore[attr-defined]
    model = build(spec.replace({"decoder.blocks.*.attention.backend": "reference"}), seed=0).eval()  # type: ignore[attr-defined]
    return with_products - counted(lambda: model(torch.ones(1, 1, dtype=torch.long)))


def test_a_sliding_window_reads_no_more_than_its_size():
    spec = preset("llama", **SMALL).replace(
        {
            "decoder.blocks.*.attention.pattern": {
                "kind": "and",
                "parts": [{"kind": "causal"}, {"kind": "window", "size": 4}],
            }
        }
    )
    near, far = token(spec, 100), token(spec, 1000)
    assert near == far


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_step_reads_every_weight_but_the_tables_of_the_input(name: str, precision: str):
    spec = DECODERS[name]
    model = build(spec, seed=0)
    unread = [p for n, p in model.named_parameters() if "position" in n]
    unread += [] if spec.head.tied else [model.decoder.embedding.weight]
    size = 4 if precision == "fp32" else 2
    expected = size * (sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in unread))
    assert read_by_step(spec, precision) == expected
    work = token(spec, CONTEXT, rows=5, precision=precision)
    assert work is not None
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    assert work.bytes == expected + 5 * (cache_bytes(spec, CONTEXT, dtype=dtype) or 0)


def test_a_translator_reads_the_decoder_without_what_was_done_for_the_source():
    spec = preset("transformer", **SMALL, d_ff=64)
    model = build(spec, seed=0).eval()
    decoder = sum(p.numel() for n, p in model.decoder.named_parameters() if "embedding" not in n)
    crossed = sum(p.numel() for n, p in model.decoder.named_parameters() if ".cross.k." in n or ".cross.v." in n)
    biases = sum(p.numel() for n, p in model.decoder.named_parameters() if ".cross.k.bias" in n or ".cross.v.bias" in n)
    table = spec.vocab_size * spec.d_model
    assert read_by_step(spec, "fp32") == 4 * (decoder - crossed + biases + table)
    reference = {"encoder.blocks.*.attention.backend": "reference", "decoder.blocks.*.attention.backend": "reference"}
    reference["decoder.blocks.*.cross.backend"] = "reference"
    model = build(spec.replace(reference), seed=0).eval()
    work = token(spec, CONTEXT, SOURCE)
    assert work is not None
    assert work.flops == pytest.approx(step_flops(model, CONTEXT), rel=0.05)  # norms are counted here alone
    read = prompt(spec, SOURCE)
    start = counted(lambda: model.start(source=torch.ones(1, SOURCE, dtype=torch.long)))
    assert read.flops == pytest.approx(start, rel=0.05)


def test_a_prompt_is_a_pass_with_one_prediction():
    spec = DECODERS["gpt2"]
    model = build(spec.replace({"decoder.blocks.*.attention.backend": "reference"}), seed=0).eval()
    cache = model.start(2)
    found = counted(lambda: model.step(torch.ones(2, CONTEXT, dtype=torch.long), cache))
    full = (
        2 * model.spec.n_layers * 4 * (CONTEXT * CONTEXT - CONTEXT * (CONTEXT + 1) // 2) * 4 * 8
    )  # pairs that a mask hides
    assert prompt(spec, CONTEXT, rows=2).flops == pytest.approx(found - full, rel=0.05)
    again = token_without_cache(spec, CONTEXT, rows=2)
    assert again.flops == prompt(spec, CONTEXT, rows=2).flops


def test_of_a_mixture_the_chosen_experts_count():
    mixture = {"kind": "moe", "n_experts": 8, "top_k": 2, "d_ff": 64}
    spec = preset("gpt2", **SMALL, max_positions=64).replace({"decoder.blocks.*.feedforward": mixture})
    dense = spec.replace({"decoder.blocks.*.feedforward": {**mixture, "n_experts": 2}})
    router = 2 * 32 * 6  # of 6 more experts in 2 layers
    assert read_by_step(spec, "fp32") == read_by_step(dense, "fp32") + 4 * router
    everything = 4 * spec.cost().idle
    assert read_by_step(spec, "fp32", 1000) == read_by_step(spec, "fp32") + everything
    assert read_by_step(spec, "fp32") < read_by_step(spec, "fp32", 2) < read_by_step(spec, "fp32", 3)


def test_time_is_the_larger_of_computation_and_memory_traffic():
    device = Accelerator("d", {"bf16": 100.0}, 10.0, 1e9)
    assert (
        Computation(1000, 10).seconds(device, "bf16") == 10.0
        and Computation(1000, 10).bound(device, "bf16") == "compute"
    )
    assert (
        Computation(10, 1000).seconds(device, "bf16") == 100.0
        and Computation(10, 1000).bound(device, "bf16") == "memory"
    )


def test_models_that_do_not_decode():
    with pytest.raises(ValueError, match="an encoder alone"):
        token(preset("bert-base", **SMALL), 5)


@pytest.mark.parametrize("kind", [{"kind": "sinks", "sinks": 2, "window": 6}, {"kind": "h2o", "heavy": 4, "recent": 4}])
def test_a_step_attends_to_what_an_evicting_cache_keeps(kind: dict[str, object]):
    spec = DECODERS["llama"]
    at_most, beyond, whole = token(spec, 8, cache=kind), token(spec, 500, cache=kind), token(spec, 500)
    assert at_most is not None and beyond is not None and whole is not None
    assert beyond == at_most and beyond.flops < whole.flops and beyond.bytes < whole.bytes
