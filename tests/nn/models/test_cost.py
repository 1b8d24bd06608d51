"""The cost formulas against models: parameters counted over a grid of specs, FLOPs counted by PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from qkv.io.families import preset
from qkv.nn.layers.moe import MixtureOfExperts
from qkv.nn.models.build import build
from qkv.nn.models.transformer import Transformer

NORMS = st.sampled_from(["none", "layernorm", {"kind": "layernorm", "bias": False}, "rmsnorm"])
V = 21


@st.composite
def mixers(draw: st.DrawFn, heads: int, d_head: int | None) -> dict[str, Any]:
    return {
        "kind": "attention",
        "n_heads": heads,
        "d_head": d_head,
        "n_kv_heads": draw(st.sampled_from([None, 1, heads])),
        "d_value": draw(st.sampled_from([None, 5])),
        "bias": draw(st.booleans()),
        "out_bias": draw(st.sampled_from([None, True, False])),
        "qk_norm": draw(NORMS),
    }


@st.composite
def blocks(draw: st.DrawFn, cross: bool, heads: int, d_head: int | None) -> dict[str, Any]:
    placement = draw(st.sampled_from(["pre", "post", "sandwich", "res-post", *([] if cross else ["parallel"])]))
    gated, bias = draw(st.booleans()), draw(st.booleans())
    full = {"kind": "feedforward", "d_ff": draw(st.integers(1, 20)), "gated": gated, "bias": bias}
    return {
        "attention": draw(st.just("none") | mixers(heads, d_head)),
        "cross": draw(mixers(draw(st.sampled_from([1, 4])), None)) if cross else None,
        "feedforward": draw(st.sampled_from([full, "none"])),
        "norm": draw(NORMS),
        "placement": placement,
        "shared_norm": placement == "parallel" and draw(st.booleans()),
    }


@st.composite
def specs(draw: st.DrawFn) -> Transformer:
    shape = draw(st.sampled_from(["encoder", "decoder", "both"]))
    width, tie, stacks = draw(st.sampled_from([None, 8, 10])), draw(st.booleans()), {}
    for name in ("encoder", "decoder"):
        if shape in (name, "both"):
            heads, d_head = draw(st.sampled_from([(1, None), (4, None), (2, 6)]))
            layers = st.lists(blocks(shape == "both" and name == "decoder", heads, d_head), min_size=1, max_size=2)
            embedding = {"width": width, "token_types": draw(st.sampled_from([0, 2])), "norm": draw(NORMS)}
            position = draw(st.sampled_from(["none", "sinusoidal", "learned", "rotary", "alibi", "t5"]))
            stacks[name] = {"embedding": embedding, "position": position, "blocks": draw(layers), "norm": draw(NORMS)}
    tied = width is None and draw(st.booleans())
    head = {"kind": "language-model", "tied": tied, "bias": draw(st.booleans())}
    return Transformer.from_dict(
        {
            "vocab_size": V,
            "source_vocab_size": draw(st.sampled_from([None, 13])) if not tie else None,
            "d_model": 16,
            "max_positions": 9,
            **stacks,
            "tie_embeddings": tie,
            "head": draw(st.sampled_from([head, None])),
            "classification_head": draw(st.sampled_from([None, {"labels": None}, {"activation": None, "labels": 3}])),
        }
    )


@settings(max_examples=150)
@given(specs())
def test_parameters_match_the_modules(spec: Transformer) -> None:
    assert spec.n_parameters == sum(p.numel() for p in build(spec, device="meta").parameters())


def counted(spec: Transformer, tokens: int, source: int) -> int:
    """FLOPs of matrix products in one forward pass of one sequence."""
    everywhere = {f"{name}.blocks.*.attention.backend": "reference" for name, _ in spec.stacks()}
    if spec.is_encoder_decoder:
        everywhere["decoder.blocks.*.cross.backend"] = "reference"
    model = build(spec.replace(everywhere)).eval()
    ids = [torch.zeros(1, n, dtype=torch.long) for n in ((source, tokens) if spec.is_encoder_decoder else (tokens,))]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*ids)
    return counter.get_total_flops()


CHANGES: list[dict[str, Any]] = [
    {},
    {"decoder.blocks.*.attention.n_kv_heads": 1},
    {"decoder.blocks.*.attention.d_value": 3},
    {"decoder.blocks.*.feedforward": {"kind": "feedforward", "d_ff": 9, "gated": True}},
    {"decoder.blocks.*.feedforward": "none"},
    {"head.tied": False, "head.bias": True},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
@pytest.mark.parametrize("family", ["gpt2", "transformer", "llama"])
def test_flops_are_matrix_products_and_norms(family: str, changes: dict[str, Any]) -> None:
    sizes: dict[str, Any] = {"vocab_size": 50, "d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 24}
    spec = preset(family, **sizes).replace({"decoder.blocks.*.attention.pattern": "full", **changes})
    tokens, source = 11, 7 if spec.is_encoder_decoder else 0
    bare = spec.replace({f"{name}.{path}": "none" for name, _ in spec.stacks() for path in ("norm", "blocks.*.norm")})
    assert bare.cost(tokens, source).flops == counted(bare, tokens, source)
    norms = sum(
        (8 if kind == "layernorm" else 4) * 16 * (source if path.startswith("encoder") else tokens)
        for path, module in build(spec, device="meta").named_modules()
        for kind in [type(module).__name__.lower().removesuffix("alize")]
        if kind in ("layernorm", "rmsnorm")
    )
    assert spec.cost(tokens, source).flops == counted(spec, tokens, source) + norms


def test_a_causal_pattern_costs_its_pairs_only() -> None:
    sizes: dict[str, Any] = {"vocab_size": 50, "d_model": 16, "n_layers": 3, "n_heads": 4}
    spec, n = preset("gpt2", **sizes), 100
    whole = spec.replace({"decoder.blocks.*.attention.pattern": "full"})
    near = spec.replace({"decoder.blocks.*.attention.pattern": {"kind": "window", "size": 5}})
    unseen = whole.cost(n).flops - spec.cost(n).flops
    assert unseen == 3 * 2 * 2 * 16 * (n * n - n * (n + 1) // 2)  # layers · (QKᵀ, AV) · multiply-add · width · pairs
    assert near.cost(n).flops < spec.cost(n).flops


def test_flops_with_a_projected_embedding_differ_by_its_bias_at_most() -> None:
    spec = preset("gpt2", vocab_size=50, d_model=16, n_layers=1, n_heads=4)
    spec = spec.replace({"decoder.embedding.width": 10, "head.tied": False, "decoder.blocks.*.norm": "none"})
    spec = spec.replace({"decoder.norm": "none", "decoder.blocks.*.attention.pattern": "full"})
    assert 0 <= spec.cost(8).flops - counted(spec, 8, 0) <= 2 * 8 * 16


def mixtral(**changes: Any) -> Transformer:
    """Mixtral 8x7B by hand: Mistral 7B's sizes, eight experts in each layer (Jiang et al. 2024)."""
    experts = MixtureOfExperts(n_experts=8, top_k=2, d_ff=14336)
    sizes = {"d_model": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "d_ff": 1, "max_positions": None}
    return preset("llama", vocab_size=32000, **sizes).replace({"decoder.blocks.*.feedforward": experts, **changes})


def test_mixtral_has_46_7_billion_parameters_and_uses_12_9() -> None:
    cost = mixtral().cost(tokens=1)
    assert cost.parameters == 46_702_792_704
    assert 12.87e9 < cost.active < 12.89e9
    assert 2 * (cost.active - 32000 * 4096) < cost.flops < 2.01 * cost.active, (
        "all but the table of embeddings is multiplied"
    )
    assert sum(p.numel() for p in build(mixtral(), device="meta").parameters()) == cost.parameters


def test_every_parameter_of_a_dense_model_is_active() -> None:
    cost = preset("gpt2").cost()
    assert cost.active == cost.parameters and (cost * 3).active == 3 * cost.parameters
