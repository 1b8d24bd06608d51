"""GPT-NeoX and Pythia (Black et al. 2022): partial rotary positions, and attention beside the feed-forward layer."""

from __future__ import annotations

from typing import Any

from ...nn.models.placement import Parallel
from ...nn.models.transformer import Transformer
from ...nn.positions.rotary import Rotary
from ..hub.family import Family, Table
from ..hub.keys import ACTIVATIONS, ANY, Key
from ..hub.names import Row
from ..hub.transforms import Grouped
from .classes import decoders, scores
from .factories import alike, based_on
from .gpt2 import gpt
from .places import heads, places
from .rope import Rope


@based_on(
    gpt,
    without=("n_kv_heads", "embedding_dropout", "bias"),
    vocab_size=50432,
    d_model=6144,
    n_layers=44,
    n_heads=64,
    activation="gelu",
    dropout=0.0,
    tied=False,
    max_positions=2048,
)
def neox(
    *,
    d_ff: int = 24576,
    attention_bias: bool = True,
    attention_dropout: float = 0.0,
    parallel: bool = True,
    **sizes: Any,
) -> Transformer:
    """GPT-2 with rotary positions and, if `parallel`, the feed-forward layer beside attention."""
    position = sizes["position"] or Rotary(fraction=0.25)
    spec = gpt(**{**sizes, "position": position}, d_ff=d_ff, attention_dropout=attention_dropout)
    own = {"attention.bias": attention_bias, "placement": "parallel" if parallel else "pre"}
    return spec.replace(decoder=alike(spec.output, own))


SIZES: dict[str, dict[str, Any]] = {
    "gpt-neox-20b": {},
    "pythia-160m": {"vocab_size": 50304, "d_model": 768, "n_layers": 12, "n_heads": 12, "d_ff": 3072},
}


def names(spec: Transformer) -> Table:
    """The rows; queries, keys and values are fused head by head."""
    assert spec.decoder is not None
    layer, block = "gpt_neox.layers.{i}", "decoder.blocks.{i}"
    n_heads = heads(spec.decoder, spec.d_model)[0]
    return (
        Row("gpt_neox.embed_in.weight", "decoder.embedding.weight"),
        Row(f"{layer}.input_layernorm.*", f"{block}.norm.attention.*"),
        Row(f"{layer}.post_attention_layernorm.*", f"{block}.norm.feedforward.*"),
        Row(f"{layer}.attention.query_key_value.*", f"{block}.attention.[q,k,v].*", Grouped(n_heads)),
        Row(f"{layer}.attention.dense.*", f"{block}.attention.out.*"),
        Row(f"{layer}.mlp.dense_h_to_4h.*", f"{block}.feedforward.up.*"),
        Row(f"{layer}.mlp.dense_4h_to_h.*", f"{block}.feedforward.down.*"),
        Row("gpt_neox.final_layer_norm.*", "decoder.norm.*"),
        Row("embed_out.weight", "head.weight"),
        Row("lm_head.weight", "head.weight"),  # what transformers 5 calls it in memory
        scores(spec),
        Row(f"{layer}.attention.bias", ""),  # masks and tables, in old files
        Row(f"{layer}.attention.masked_bias", ""),
        Row(f"{layer}.attention.rotary_emb.inv_freq", ""),
    )


FAMILY = Family(
    model_type="gpt_neox",
    make=neox,
    classes=decoders("GPTNeoX", dropout={"classifier_dropout": 0.1}),
    prefix="gpt_neox.",
    fields=(
        Key("vocab_size", "vocab_size", 50432),
        Key("hidden_size", "d_model", 6144),
        Key("num_hidden_layers", "n_layers", 44),
        Key("num_attention_heads", "n_heads", 64),
        Key("intermediate_size", "d_ff", 24576),
        Key("hidden_act", "activation", "gelu", ACTIVATIONS),
        Key("attention_bias", "attention_bias", True),
        Key("use_parallel_residual", "parallel", True),
        Key("hidden_dropout", "dropout", 0.0),
        Key("attention_dropout", "attention_dropout", 0.0),
        Key("layer_norm_eps", "eps", 1e-5),
        Key("max_position_embeddings", "max_positions", 2048),
        Key("tie_word_embeddings", "tied", False),
        Rope(fraction=0.25, theta_key="rotary_emb_base", fraction_key="rotary_pct", partial=True),
    ),
    places={**places("decoder"), "parallel": lambda spec: isinstance(spec.output.blocks[0].placement, Parallel)},
    harmless={"rope_theta": ANY, "partial_rotary_factor": ANY},  # repeated beside the family's own keys
    names=names,
)
