"""Qwen2-MoE (Qwen1.5-MoE; Yang et al. 2024): Qwen 2 with many narrow experts and one that serves every token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...nn.layers.feedforward import FeedForward, NoFeedForward
from ...nn.layers.moe import MixtureOfExperts
from ...nn.models.transformer import Transformer
from ...nn.positions.rotary import Rotary
from ..hub.family import UNSAID, Table, at
from ..hub.keys import ANY, Config, Key, changed
from ..hub.names import Row
from ..hub.transforms import Joined, Stacked
from .classes import decoders
from .factories import based_on
from .llama import FAMILY as LLAMA
from .llama import FIELDS, NAMES, llama
from .places import Place, places
from .qwen2 import FULL, SLIDING, LayerTypes


@based_on(
    llama,
    without=("feedforward_bias", "feedforwards", "qk_norm_over", "placement", "dropout", "unrotated"),
    vocab_size=151936,
    d_model=2048,
    n_layers=24,
    n_heads=16,
    n_kv_heads=16,
    d_ff=5632,
    attention_bias=True,
    out_bias=False,
    eps=1e-6,
    max_positions=8192,
)
def qwen2_moe(
    *,
    d_expert: int = 1408,
    d_shared: int | None = 5632,
    n_experts: int = 60,
    top_k: int = 4,
    renormalize: bool = False,
    sparse: Sequence[bool] | None = None,
    balance_weight: float = 0.001,
    **sizes: Any,
) -> Transformer:
    """A decoder-only language model.

    `sparse` tells for each layer whether it has experts (all by default); one without is of width `d_ff`. Experts are of
    width `d_expert`, the shared one of width `d_shared` (None: there is none).
    """
    activation = sizes["activation"]
    shared = None if d_shared is None else FeedForward(d_ff=d_shared, activation=activation, gated=True, bias=False)
    experts = MixtureOfExperts(
        n_experts=n_experts,
        top_k=top_k,
        d_ff=d_expert,
        activation=activation,
        renormalize=renormalize,
        balance="mixtral",
        balance_weight=balance_weight,
        shared=shared or NoFeedForward(),
        shared_gate=shared is not None,
    )
    layers = [experts if has_experts else None for has_experts in sparse or (True,) * sizes["n_layers"]]
    return llama(**{**sizes, "position": sizes["position"] or Rotary(base=1e6)}, feedforwards=layers)


SIZES: dict[str, dict[str, Any]] = {"qwen1.5-moe-a2.7b": {}}


@dataclass(frozen=True)
class SparseLayers:
    """The field `sparse`: every `decoder_sparse_step`-th layer has experts, but for `mlp_only_layers`."""

    size: str = "sparse"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"decoder_sparse_step": 1, "mlp_only_layers": None}

    def read(self, config: Config) -> tuple[bool, ...]:
        step, dense = config["decoder_sparse_step"], config["mlp_only_layers"] or []
        return tuple((i + 1) % step == 0 and i not in dense for i in range(config["num_hidden_layers"]))

    def write(self, value: Sequence[bool], sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {"decoder_sparse_step": 1, "mlp_only_layers": [i for i, has in enumerate(value) if not has]}


class LowerLayers(LayerTypes):
    """The field `windows`: without `layer_types`, every second layer slides below `max_window_layers`."""

    def types(self, config: Config) -> list[str]:
        first = config["max_window_layers"] if config["use_sliding_window"] else 0
        return [SLIDING if i < first and i % 2 == 0 else FULL for i in range(config["num_hidden_layers"])]


def _experts(spec: Transformer) -> Any:
    """The first layer of experts, or None."""
    blocks = spec.decoder.blocks if spec.decoder is not None else ()
    return next((b.feedforward for b in blocks if isinstance(b.feedforward, MixtureOfExperts)), None)


def _of_experts(name: str) -> Place:
    return lambda spec: getattr(_experts(spec), name)


def _dense_width(spec: Transformer) -> Any:
    """The width of layers without experts; UNSAID if every layer has experts."""
    blocks = spec.decoder.blocks if spec.decoder is not None else ()
    return next((b.feedforward.d_ff for b in blocks if isinstance(b.feedforward, FeedForward)), UNSAID)


PLACES: dict[str, Place] = {
    **places("decoder"),
    **{name: _of_experts(name) for name in ("n_experts", "top_k", "renormalize", "balance_weight")},
    "activation": lambda spec: (_experts(spec) or at(spec, "decoder.blocks.0.feedforward")).activation,
    "d_ff": _dense_width,
    "d_expert": _of_experts("d_ff"),
    "d_shared": lambda spec: _experts(spec).shared.d_ff,
    "sparse": lambda spec: tuple(isinstance(b.feedforward, MixtureOfExperts) for b in at(spec, "decoder.blocks")),
}


def names(spec: Transformer) -> Table:
    """Llama's rows, and rows for each layer by whether it has experts."""
    assert spec.decoder is not None
    rows = [row for row in NAMES if ".mlp." not in row.theirs]
    for i, block in enumerate(spec.decoder.blocks):
        theirs, ours = f"model.layers.{i}.mlp", f"decoder.blocks.{i}.feedforward"
        if not isinstance(block.feedforward, MixtureOfExperts):
            rows.append(Row(f"{theirs}.[gate,up,down]_proj.*", f"{ours}.[gate,up,down].*"))
            continue
        rows += [Row(f"{theirs}.experts.{{e}}.{n}_proj.weight", f"{ours}.{n}.weight", Stacked()) for n in MATRICES]
        rows += [
            Row(f"{theirs}.gate.weight", f"{ours}.router.weight"),
            Row(f"{theirs}.shared_expert.[gate,up,down]_proj.weight", f"{ours}.shared.[gate,up,down].weight"),
            Row(f"{theirs}.shared_expert_gate.weight", f"{ours}.shared_gate.weight"),
            # What transformers 5 calls them in memory.
            Row(f"{theirs}.experts.gate_up_proj", f"{ours}.[gate,up].weight", Joined(1)),
            Row(f"{theirs}.experts.down_proj", f"{ours}.down.weight"),
        ]
    return tuple(rows)


MATRICES = ("gate", "up", "down")

KEYS = changed(
    FIELDS,
    Key("num_experts_per_tok", "top_k", 4),
    Key("norm_topk_prob", "renormalize", False),
    Key("router_aux_loss_coef", "balance_weight", 0.001),
    SparseLayers(),
    vocab_size=151936,
    hidden_size=2048,
    num_hidden_layers=24,
    max_position_embeddings=32768,
)
"""The keys that both of Qwen's families with experts share."""

FAMILY = replace(
    LLAMA,
    model_type="qwen2_moe",
    make=qwen2_moe,
    classes=decoders("Qwen2Moe"),
    fields=changed(
        KEYS,
        Key("moe_intermediate_size", "d_expert", 1408),
        Key("shared_expert_intermediate_size", "d_shared", 5632),
        Key("num_experts", "n_experts", 60),
        Key("qkv_bias", "attention_bias", True),
        LowerLayers(),
        num_attention_heads=16,
        num_key_value_heads=16,
        intermediate_size=5632,
    ),
    places=PLACES,
    harmless={"output_router_logits": ANY},  # what to return; the balance loss is always part of training here
    names=names,
)
