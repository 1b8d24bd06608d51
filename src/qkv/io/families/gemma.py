"""Gemma (Gemma Team 2024): Llama with scaled embeddings, norm weights as 1 + g, GELU in its gate, and wide heads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...nn.layers.norm import RMSNorm
from ...nn.models.transformer import Transformer
from ..hub.family import Family
from ..hub.keys import ACTIVATIONS, ANY, Key, changed
from .classes import decoders
from .factories import based_on
from .llama import FAMILY as LLAMA
from .llama import FIELDS, llama

SIZES: dict[str, dict[str, Any]] = {
    "gemma-2b": {"d_model": 2048, "n_layers": 18, "n_heads": 8, "n_kv_heads": 1, "d_ff": 16384},
    "gemma-7b": {},
}


@based_on(
    llama,
    without=("qk_norm", "qk_norm_over", "placement", "unrotated", "feedforwards", "feedforward_bias", "out_bias"),
    vocab_size=256000,
    d_model=3072,
    n_layers=28,
    n_heads=16,
    n_kv_heads=16,
    d_head=256,
    d_ff=24576,
    activation="gelu-tanh",
    eps=1e-6,
    tied=True,
    max_positions=8192,
)
def gemma(**sizes: Any) -> Transformer:
    """A decoder-only language model."""
    spec = llama(**sizes)
    assert spec.decoder is not None
    norm = RMSNorm(eps=sizes["eps"], offset=1.0)
    blocks = {block: block.replace(norm=norm) for block in set(spec.decoder.blocks)}
    return spec.replace(
        {
            "decoder.embedding.scale": "sqrt",
            "decoder.norm": norm,
            "decoder.blocks": tuple(blocks[block] for block in spec.decoder.blocks),
        }
    )


# "gelu" stands in the first files, and is computed by its tanh.
GELU = {"gelu_pytorch_tanh": "gelu-tanh", **ACTIVATIONS, "gelu": "gelu-tanh"}

FAMILY: Family = replace(
    LLAMA,
    model_type="gemma",
    make=gemma,
    classes=decoders("Gemma"),
    fields=changed(
        FIELDS,
        Key("hidden_act", "activation", "gelu_pytorch_tanh", GELU),
        Key("attention_bias", "attention_bias", False),
        vocab_size=256000,
        hidden_size=3072,
        intermediate_size=24576,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=16,
        head_dim=256,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    ),
    harmless={"hidden_activation": ANY, "use_bidirectional_attention": False},
)
