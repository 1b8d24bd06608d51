"""What a cache will hold, by the spec alone, against the formula, against published sizes and against what is held."""

from __future__ import annotations

import pytest
import torch

import qkv
from qkv.nn.cost.kv_cache import cache_bytes, cache_parts
from qkv.nn.kv_cache.kinds import FullCache, PagedCache, QuantizedCache, SinkCache

SEVEN = qkv.preset("llama", max_positions=131072)  # 32 layers, 32 heads of width 128
MIB, GIB = 2**20, 2**30


def test_seven_billion_parameters_take_half_a_mebibyte_a_token() -> None:
    assert cache_bytes(SEVEN, 1, dtype=torch.float16) == 2 * 32 * 32 * 128 * 2 == 0.5 * MIB
    assert cache_bytes(SEVEN, 131072, dtype=torch.float16) == 64 * GIB
    grouped = SEVEN.replace({"decoder.blocks.*.attention.n_kv_heads": 8})
    assert cache_bytes(grouped, 131072, dtype=torch.float16) == 16 * GIB


def test_eight_and_four_bits_are_stated_by_their_parts() -> None:
    tokens = 131072
    parts = cache_parts(SEVEN, tokens, "int8", torch.float16)
    coded = tokens - 128
    assert parts == {
        "payload": coded * 2 * 32 * 32 * 128,
        "scales": 32
        * 32
        * (coded // 128 * 128 + coded)
        * 4,  # a channel's of 128 tokens, and a token's, 2 · 2 bytes each
        "residual": 128 * MIB // 2,
    }
    half = cache_parts(SEVEN, tokens, "int4", torch.float16)
    assert half is not None and half["payload"] == parts["payload"] / 2 and half["scales"] == parts["scales"]


@pytest.mark.parametrize(
    "how",
    [FullCache(), QuantizedCache(group=4, residual=2), SinkCache(sinks=2, window=6), PagedCache(page=5)],
)
@pytest.mark.parametrize("windows", [None, [None, 7]])
def test_what_is_foretold_is_what_is_held(how: qkv.CacheKind, windows: list[int | None] | None) -> None:
    sizes = {"d_model": 24, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "d_ff": 16, "vocab_size": 9}
    spec = qkv.preset("llama", windows=windows, max_positions=64, **sizes)
    model = qkv.build(spec).eval()
    cache = model.start(1, cache=how)
    with torch.no_grad():
        for t in range(23):
            model.step(torch.tensor([[t % 9]]), cache)
            assert cache.parts == cache_parts(spec, t + 1, how, torch.float32)


@pytest.mark.parametrize("how", [FullCache(), QuantizedCache(group=4, residual=2), PagedCache(page=5)])
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("transformer", {"d_ff": 16}),
        ("bart-base", {"d_ff": 16, "max_positions": 64}),
        ("t5-small", {"d_ff": 16, "d_head": 5}),
        ("transformer", {"d_ff": 16, "n_heads": 4, "n_layers": 1}),
    ],
)
def test_an_encoder_decoder_holds_the_encoders_keys_and_values_too(
    name: str, sizes: dict[str, int], how: qkv.CacheKind
) -> None:
    spec = qkv.preset(name, **({"d_model": 24, "n_layers": 2, "n_heads": 4, "vocab_size": 9} | sizes))
    model = qkv.build(spec).eval()
    with torch.no_grad():
        cache = model.start(source=torch.ones(1, 11, dtype=torch.int64), cache=how)
        for t in range(7):
            model.step(torch.tensor([[t]]), cache)
    foretold = cache_parts(spec, 7, how, torch.float32, source=11)
    assert cache.parts == foretold
    assert cache.nbytes == cache_bytes(spec, 7, how, torch.float32, source=11)
    assert cache_bytes(spec, 7, how) == cache_bytes(spec, 7, how, source=7)


def test_a_model_without_a_cache_of_keys_is_refused() -> None:
    with pytest.raises(ValueError, match="an encoder alone does not decode"):
        cache_bytes(qkv.preset("bert-base"), 10)
