"""Mixtral (Jiang et al. 2024): Mistral whose feed-forward layers are mixtures of experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...nn.layers.moe import MixtureOfExperts
from ...nn.models.transformer import Transformer
from ...nn.positions.rotary import Rotary
from ..hub.keys import ANY, Key, changed
from ..hub.names import Row
from ..hub.transforms import Joined, Stacked
from .classes import decoders
from .factories import based_on
from .llama import FAMILY as LLAMA
from .llama import FIELDS, NAMES, llama
from .mistral import PLACES
from .rope import Rope

# fmt: off
DECIDED = (
    "attention_bias", "out_bias", "feedforward_bias", "feedforwards",
    "qk_norm", "qk_norm_over", "placement", "dropout", "unrotated",
)
# fmt: on


@based_on(llama, without=DECIDED, n_kv_heads=8, d_ff=14336, max_positions=32768)
def mixtral(
    *, n_experts: int = 8, top_k: int = 2, balance_weight: float = 0.02, jitter: float = 0.0, **sizes: Any
) -> Transformer:
    """Mistral; of `n_experts` feed-forward layers of width `d_ff`, each token uses `top_k`."""
    experts = MixtureOfExperts(
        n_experts=n_experts,
        top_k=top_k,
        d_ff=sizes["d_ff"],
        activation=sizes["activation"],
        renormalize=True,
        jitter=jitter,
        balance="mixtral",
        balance_weight=balance_weight,
    )
    position = sizes["position"] or Rotary(base=1e6)
    return llama(**{**sizes, "position": position}, feedforwards=(experts,) * sizes["n_layers"])


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

FAMILY = replace(
    LLAMA,
    model_type="mixtral",
    make=mixtral,
    classes=decoders("Mixtral"),
    fields=changed(
        FIELDS,
        Key("sliding_window", "windows", None),
        Key("num_local_experts", "n_experts", 8, also=("num_experts",)),
        Key("num_experts_per_tok", "top_k", 2),
        Key("router_aux_loss_coef", "balance_weight", 0.001),
        Key("router_jitter_noise", "jitter", 0.0),
        Rope(base=1e6),
        intermediate_size=14336,
        num_key_value_heads=8,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
    ),
    places={
        **PLACES,
        **{size: f"decoder.blocks.0.feedforward.{size}" for size in ("n_experts", "top_k", "balance_weight", "jitter")},
    },
    harmless={"output_router_logits": ANY},  # what to return; the balance loss is always part of training here
    names=(*(row for row in NAMES if ".mlp." not in row.theirs), *EXPERTS),
)
