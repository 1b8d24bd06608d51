"""Caches of every kind and every family that decodes: predicted bytes are those that are kept."""

from __future__ import annotations

import pytest
import torch

import qkv
from qkv.io.families import preset, presets
from qkv.nn.cost.kv_cache import cache_bytes, cache_parts
from qkv.nn.kv_cache.kinds import CacheKind
from qkv.nn.models.transformer import Transformer
from qkv.runs.recipes.sizes import sizes_of

SMALL = {"d_model": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "d_ff": 24, "vocab_size": 9, "max_positions": 64}
SMALL |= {"d_head": 8, "n_experts": 8}
SETTINGS = {
    "full": {},
    "quantized": {"group": 4, "residual": 2},
    "paged": {"page": 5},
    "sinks": {"sinks": 2, "window": 6},
    "h2o": {"heavy": 3, "recent": 3},
    "snapkv": {"tokens": 6, "window": 2},
}
TOKENS, SOURCE = 9, 11
FAST = ("transformer", "gpt2", "llama", "gemma-2-2b", "mixtral-8x7b", "t5-small", "bart-base", "falcon-7b")

REFUSED: dict[str, tuple[str, ...]] = {  # by kind: families with added positions; with biases, which need all positions
    "sinks": (
        *("transformer", "gpt", "gpt2", "gpt3", "starcoder", "openai-gpt", "opt"),
        *("bart", "mbart", "opus-mt", "pegasus", "m2m100", "nllb-200"),
    ),
    "h2o": ("bloom", "mpt", "falcon-rw", "t5", "flan-t5", "mt5", "umt5"),
    "snapkv": ("bloom", "mpt", "falcon-rw", "t5", "flan-t5", "mt5", "umt5"),
}
CONVOLUTIONS = ("bytenet", "convs2s")
"""Presets whose layers have their own decoding state, for which there is the full cache only."""


def refused(name: str, kind: str) -> bool:
    family = name not in ("gpt-neox-20b", "gpt-j-6b") and any(
        f"{name}-".startswith(f"{prefix}-") for prefix in REFUSED.get(kind, ())
    )
    return family or (name in CONVOLUTIONS and kind != "full")


def small(name: str) -> Transformer:
    return preset(name, **{key: value for key, value in SMALL.items() if key in sizes_of(name)})


def decodes(name: str) -> bool:
    spec = preset(name)
    reads_files = name.startswith(("captioner", "whisper", "speech-transformer", "joint"))  # instead of tokens
    return isinstance(spec, Transformer) and spec.decoder is not None and not reads_files


def test_every_kind_is_tried() -> None:
    own = {name for name, kind in CacheKind.kinds.items() if kind.__module__.startswith("qkv.")}
    assert SETTINGS.keys() == own


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in FAST else [pytest.mark.slow]) for n in presets() if decodes(n)]
)
def test_predicted_bytes_are_those_that_are_kept(name: str, kind: str) -> None:
    spec, how = small(name), CacheKind.from_dict({"kind": kind, **SETTINGS[kind]})
    source = SOURCE if spec.is_encoder_decoder else 0
    model = qkv.build(spec).eval()
    start = {"source": torch.ones(1, SOURCE, dtype=torch.long)} if source else {"batch_size": 1}
    if refused(name, kind):
        with pytest.raises(ValueError, match=r"leave the cache at full|or another cache"):
            model.start(**start, cache=how)
        return
    cache = model.start(**start, cache=how)
    with torch.no_grad():
        at_once = TOKENS if kind == "snapkv" else 1  # SnapKV chooses among the tokens of a prompt
        for ids in torch.arange(TOKENS)[None].split(at_once, dim=1):
            model.step(ids, cache)
    assert cache.parts == cache_parts(spec, TOKENS, how, torch.float32, source=source)
    assert cache.nbytes == cache_bytes(spec, TOKENS, how, torch.float32, source=source)


MIXERS = {
    "convolution": {"kind": "convolution", "kernel": 3, "dilation": 2, "pattern": "causal"},
    "linear": {"kind": "linear-attention", "n_heads": 4, "pattern": "causal"},
    "performer": {"kind": "performer", "n_heads": 4, "pattern": "causal"},
    "latent": {"kind": "latent-attention", "n_heads": 4, "d_head": 8, "d_rotary": 8, "d_latent": 12},
    "latent, window": {
        "kind": "latent-attention",
        "n_heads": 4,
        "d_rotary": 8,
        "d_latent": 12,
        "pattern": {"kind": "window", "size": 4},
    },
    "lsh": {"kind": "lsh-attention", "n_heads": 4, "pattern": "causal"},
    "none": {"kind": "none"},
}


@pytest.mark.parametrize("mixer", MIXERS)
def test_states_of_other_mixers_are_predicted(mixer: str) -> None:
    spec = small("llama").replace({"decoder.blocks.0.attention": MIXERS[mixer]})
    model = qkv.build(spec).eval()
    cache = model.start(1)
    with torch.no_grad():
        for ids in torch.arange(TOKENS)[None].split(1, dim=1):
            model.step(ids, cache)
    assert cache.parts == cache_parts(spec, TOKENS, "full", torch.float32)
