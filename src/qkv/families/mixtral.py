"""Mixtral (Jiang et al. 2024): Mistral whose feed-forward layers are mixtures of experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..hub.family import Family
from ..hub.keys import ANY, Key, changed
from ..hub.names import Row
from ..hub.transforms import Joined, Stacked
from ..layers.feedforward import Activation
from ..layers.moe import MixtureOfExperts
from ..models.transformer import Transformer
from ..positions.base import Position
from ..positions.rotary import Rotary
from .classes import decoders
from .llama import FIELDS, NAMES, llama
from .mistral import PLACES
from .rope import Rope


def mixtral(
    *,
    vocab_size: int = 32000,
    d_model: int = 4096,
    n_layers: int = 32,
    n_heads: int = 32,
    n_kv_heads: int | None = 8,
    d_head: int | None = None,
    d_ff: int = 14336,
    activation: Activation = "silu",
    n_experts: int = 8,
    top_k: int = 2,
    balance_weight: float = 0.02,
    jitter: float = 0.0,
    attention_dropout: float = 0.0,
    eps: float = 1e-5,
    tied: bool = False,
    position: Position | None = None,
    windows: Sequence[int | None] | int | None = None,
    max_positions: int | None = 32768,
    head: bool = True,
) -> Transformer:
    """A decoder-only language model; of `n_experts` layers of width `d_ff`, each token uses `top_k`."""
    experts = MixtureOfExperts(
        n_experts=n_experts,
        top_k=top_k,
        d_ff=d_ff,
        activation=activation,
        renormalize=True,
        jitter=jitter,
        balance="mixtral",
        balance_weight=balance_weight,
    )
    return llama(
        vocab_size=vocab_size,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_head=d_head,
        feedforwards=(experts,) * n_layers,
        attention_dropout=attention_dropout,
        eps=eps,
        tied=tied,
        position=position or Rotary(base=1e6),
        windows=windows,
        max_positions=max_positions,
        head=head,
    )


SIZES: dict[str, dict[str, Any]] = {"mixtral-8x7b": {}}

LAYER, BLOCK = "model.layers.{i}", "decoder.blocks.{i}.feedforward"
EXPERTS = (
    Row(f"{LAYER}.block_sparse_moe.gate.weight", f"{BLOCK}.router.weight"),
    Row(f"{LAYER}.block_sparse_moe.experts.{{e}}.w1.weight", f"{BLOCK}.gate.weight", Stacked()),
    Row(f"{LAYER}.block_sparse_moe.experts.{{e}}.w3.weight", f"{BLOCK}.up.weight", Stacked()),
    Row(f"{LAYER}.block_sparse_moe.experts.{{e}}.w2.weight", f"{BLOCK}.down.weight", Stacked()),
    # What transformers 5 calls them in memory.
    Row(f"{LAYER}.mlp.gate.weight", f"{BLOCK}.router.weight"),
    Row(f"{LAYER}.mlp.experts.gate_up_proj", f"{BLOCK}.[gate,up].weight", Joined(1)),
    Row(f"{LAYER}.mlp.experts.down_proj", f"{BLOCK}.down.weight"),
)

FAMILY = Family(
    model_type="mixtral",
    make=mixtral,
    classes=decoders("Mixtral"),
    prefix="model.",
    fields=changed(
        FIELDS,
        Key("intermediate_size", "d_ff", 14336),
        Key("num_key_value_heads", "n_kv_heads", 8),
        Key("max_position_embeddings", "max_positions", 131072),
        Key("rms_norm_eps", "eps", 1e-5),
        Key("sliding_window", "windows", None),
        Key("num_local_experts", "n_experts", 8, also=("num_experts",)),
        Key("num_experts_per_tok", "top_k", 2),
        Key("router_aux_loss_coef", "balance_weight", 0.001),
        Key("router_jitter_noise", "jitter", 0.0),
        Rope(base=1e6),
    ),
    places={
        **PLACES,
        "n_experts": "decoder.blocks.0.feedforward.n_experts",
        "top_k": "decoder.blocks.0.feedforward.top_k",
        "balance_weight": "decoder.blocks.0.feedforward.balance_weight",
        "jitter": "decoder.blocks.0.feedforward.jitter",
    },
    harmless={"output_router_logits": ANY},  # what to return; the balance loss is always part of training here
    names=(*(row for row in NAMES if ".mlp." not in row.theirs), *EXPERTS),
)
