"""Caches of every kind and every family that decodes: predicted bytes are those that are kept."""

from __future__ import annotations

import pytest
import torch

import qkv
from qkv.cost.kv_cache import cache_bytes, cache_parts
from qkv.families import preset, presets
from qkv.kv_cache.kinds import CacheKind
from qkv.models.transformer import Transformer
from qkv.recipes.sizes import sizes_of

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


def small(name: str) -> Transformer:
    return preset(name, **{key: value for key, value in SMALL.items() if key in sizes_of(name)})


def decodes(name: str) -> bool:
    spec = preset(name)
    return isinstance(spec, Transformer) and spec.decoder is not None and name != "captioner"  # which reads pictures


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
    try:
        cache = model.start(**start, cache=how)
    except ValueError as error:
        pytest.skip(f"refused: {error}")
    with torch.no_grad():
        at_once = TOKENS if kind == "snapkv" else 1  # SnapKV chooses among the tokens of a prompt
        for ids in torch.arange(TOKENS)[None].split(at_once, dim=1):
            model.step(ids, cache)
    assert cache.parts == cache_parts(spec, TOKENS, how, torch.float32, source=source)
    assert cache.nbytes == cache_bytes(spec, TOKENS, how, torch.float32, source=source)
