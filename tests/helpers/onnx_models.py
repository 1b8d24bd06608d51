"""Small models for graphs of ONNX: of presets, with states of a fixed size, and with a mixture of experts."""

from __future__ import annotations

from typing import Any

import qkv

PROMPTS = [[7, 3, 11, 40, 2], [5, 9], [1, 2, 3, 4]]
SIZES: dict[str, Any] = {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 60}
ATTENTION, FEEDFORWARD = "decoder.blocks.*.attention", "decoder.blocks.*.feedforward"
FIRST = "decoder.blocks.0.attention"
MOE = {"kind": "moe", "n_experts": 4, "d_ff": 24}
SHARED = {"kind": "feedforward", "d_ff": 24, "activation": "silu", "gated": True, "bias": False}
LINEAR = {"kind": "linear-attention", "n_heads": 4, "pattern": "causal"}
PERFORMER = {"kind": "performer", "n_heads": 4, "pattern": "causal", "features": {"kind": "favor", "n_features": 16}}
CONVOLUTION = {"kind": "convolution", "kernel": 3, "pattern": "causal"}
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "mixture": ("gpt2", {FEEDFORWARD: MOE}),
    "mixture: one expert of each token": ("gpt2", {FEEDFORWARD: {**MOE, "top_k": 1, "gated": False}}),
    "mixture: sigmoids, a bias, a shared layer with a gate": (
        "llama",
        {FEEDFORWARD: {**MOE, "score": "sigmoid", "bias_rate": 0.01, "shared": SHARED, "shared_gate": True}},
    ),
    "linear attention": ("gpt2", {ATTENTION: LINEAR}),
    "linear attention: fewer key-value heads": ("llama", {ATTENTION: {**LINEAR, "n_kv_heads": 2}}),
    "performer": ("gpt2", {ATTENTION: PERFORMER}),
    "convolutions": ("gpt2", {ATTENTION: {**CONVOLUTION, "gated": True}}),
    "convolution before attention": ("llama", {FIRST: {**CONVOLUTION, "dilation": 2}}),
    "linear attention and a mixture": ("llama", {FIRST: LINEAR, FEEDFORWARD: MOE}),
    "bytenet": ("bytenet", {}),
}


def of_preset(name: str, **sizes: Any) -> Any:
    return qkv.build(qkv.preset(name, **{**SIZES, **sizes}), seed=5).eval()


def built(name: str, changes: dict[str, Any], **sizes: Any) -> Any:
    if name == "bytenet":
        wanted: dict[str, Any] = {"d_model": 32, "n_layers": 3, "vocab_size": 60}
    else:
        wanted = {**SIZES, **({"d_ff": 48} if name == "llama" else {}), "max_positions": 64}
    spec = qkv.preset(name, **{**wanted, **sizes}).replace(changes)  # type: ignore[call-overload]
    return qkv.build(spec, seed=5).eval()
