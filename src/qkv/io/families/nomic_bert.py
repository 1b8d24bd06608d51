"""Nomic BERT (Nussbaum et al. 2024): a post-norm encoder with rotary positions and SwiGLU, without biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...nn.attention.multi_head import Attention
from ...nn.layers.embedding import Embedding
from ...nn.layers.feedforward import Activation, FeedForward
from ...nn.layers.norm import LayerNorm
from ...nn.models.block import Block
from ...nn.models.heads.language_model import LanguageModel, Transform
from ...nn.models.heads.sequence import SequenceClassifier
from ...nn.models.initialization import Normal
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.positions.base import Position
from ...nn.positions.rotary import Rotary
from ..hub.family import Class, Family
from ..hub.keys import ACTIVATIONS, ANY, Config, Key
from ..hub.names import Row
from ..hub.transforms import Joined
from .classes import BARE, classifier, reading, tagger
from .places import places
from .rope import Rope


def nomic_bert(
    *,
    vocab_size: int = 30528,
    d_model: int = 768,
    n_layers: int = 12,
    n_heads: int = 12,
    d_head: int | None = None,
    d_ff: int = 3072,
    activation: Activation = "silu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    eps: float = 1e-12,
    token_types: int = 2,
    tied: bool = True,
    position: Position | None = None,
    max_positions: int = 2048,
    head: bool = True,
    pooler: bool = False,
) -> Transformer:
    """An encoder with a head for masked tokens, and with `pooler` a dense layer of the first token."""
    norm = LayerNorm(eps=eps)
    block = Block(
        attention=Attention(n_heads=n_heads, d_head=d_head, bias=False, dropout=attention_dropout),
        feedforward=FeedForward(d_ff=d_ff, activation=activation, gated=True, bias=False),
        norm=norm,
        placement="post",
        dropout=dropout,
    )
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        encoder=Stack(
            embedding=Embedding(norm=norm, dropout=dropout, token_types=token_types),
            position=position or Rotary(base=1000.0),
            blocks=(block,) * n_layers,
        ),
        head=LanguageModel(tied=tied, bias=True, transform=Transform(activation=activation, norm=norm))
        if head
        else None,
        classification_head=SequenceClassifier(labels=None) if pooler else None,
        initialization=Normal(scale_residual=False),
    )


SIZES: dict[str, dict[str, Any]] = {"nomic-bert": {}, "nomic-embed-text": {"head": False, "max_positions": 8192}}

GATED = {"swiglu": "silu", "geglu": "gelu", "glu": "sigmoid"}
"""`activation_function` of the published configurations: the names of gated layers, and their activations."""


class NomicActivation(Key):
    """The field `activation`: `hidden_act`, or the name of a gated layer in `activation_function`."""

    @property
    def keys(self) -> Mapping[str, Any]:
        return {**super().keys, "activation_function": None}

    def read(self, config: Config) -> object:
        if (published := config["activation_function"]) is None:
            return super().read(config)
        return Key("activation_function", self.size, None, GATED).read({"activation_function": published})


@dataclass(frozen=True)
class NomicRope(Rope):
    """The field `position`. Published configurations have keys for the base, the rotated fraction and the factor of dynamic
    scaling. Scaling starts at `max_trained_positions`."""

    base: float = 1000.0

    @property
    def keys(self) -> Mapping[str, Any]:
        return {**super().keys, **dict.fromkeys(PUBLISHED)}

    def read(self, config: Config) -> Position:
        base, fraction, factor, trained = (config[key] for key in PUBLISHED)
        if base is None:
            return super().read(config)
        scaling = {"rope_type": "default"}
        if factor is not None:
            scaling = {"rope_type": "dynamic", "factor": factor}
        whole = 1.0 if fraction is None else fraction
        longest = config["max_position_embeddings"] if factor is None else trained or 2048
        own = {"rope_theta": base, self.fraction_key: whole, "rope_parameters": scaling, "rope_scaling": None}
        return super().read({**config, **own, "max_position_embeddings": longest})


PUBLISHED = ("rotary_emb_base", "rotary_emb_fraction", "rotary_scaling_factor", "max_trained_positions")

LAYER, BLOCK = "nomic_bert.encoder.layers.{i}", "encoder.blocks.{i}"
BODY = (
    Row("nomic_bert.embeddings.word_embeddings.weight", "encoder.embedding.weight"),
    Row("nomic_bert.embeddings.token_type_embeddings.weight", "encoder.embedding.types"),
    Row("nomic_bert.emb_ln.*", "encoder.embedding.norm.*"),
    Row(f"{LAYER}.attn.Wqkv.weight", f"{BLOCK}.attention.[q,k,v].weight", Joined()),
    Row(f"{LAYER}.attn.out_proj.weight", f"{BLOCK}.attention.out.weight"),
    Row(f"{LAYER}.norm1.*", f"{BLOCK}.norm.attention.*"),
    Row(f"{LAYER}.mlp.fc11.weight", f"{BLOCK}.feedforward.up.weight"),
    Row(f"{LAYER}.mlp.fc12.weight", f"{BLOCK}.feedforward.gate.weight"),
    Row(f"{LAYER}.mlp.fc2.weight", f"{BLOCK}.feedforward.down.weight"),
    Row(f"{LAYER}.norm2.*", f"{BLOCK}.norm.feedforward.*"),
    Row("nomic_bert.pooler.dense.*", "classification_head.dense.*"),
)
MODULES = "nomic_bert.layers.{i}"
ADAPTED = (
    Row(f"{MODULES}.self_attn.[q,k,v,o]_proj.weight", f"{BLOCK}.attention.[q,k,v,out].weight"),
    Row(f"{MODULES}.mlp.[up,gate,down]_proj.weight", f"{BLOCK}.feedforward.[up,gate,down].weight"),
)
"""Linear layers in transformers, which reads and writes files with the older names."""

NAMES = (
    *BODY,
    *(row.renamed("nomic_bert.", "bert.") for row in BODY),  # as in the published model of masked tokens
    Row("cls.predictions.transform.dense.*", "head.transform.dense.*"),
    Row("cls.predictions.transform.layer_norm.*", "head.transform.norm.*"),
    Row("cls.predictions.decoder.weight", "head.weight"),
    Row("cls.predictions.bias", "head.bias"),
    Row("cls.predictions.decoder.bias", "head.bias"),
    Row("nomic_bert.pooler.dense.*", "head.dense.*"),
    Row("classifier.*", "head.out.*"),
)

DROPOUT = {"classifier_dropout": None, "hidden_dropout_prob": 0.0}

FAMILY = Family(
    model_type="nomic_bert",
    make=nomic_bert,
    classes={
        "NomicBertForMaskedLM": Class(),
        "NomicBertModel": BARE,
        "NomicBertForSequenceClassification": classifier(SequenceClassifier(), DROPOUT),
        **tagger("NomicBert", DROPOUT, pooled=False),
        "NomicBertForPreTraining": Class(),
    },
    prefix="nomic_bert.",
    adapted=ADAPTED,
    fields=(
        Key("vocab_size", "vocab_size", 30528),
        Key("hidden_size", "d_model", 768, also=("n_embd",)),
        Key("num_hidden_layers", "n_layers", 12, also=("n_layer",)),
        Key("num_attention_heads", "n_heads", 12, also=("n_head",)),
        Key("head_dim", "d_head", None),
        Key("intermediate_size", "d_ff", 3072, also=("n_inner",)),
        NomicActivation("hidden_act", "activation", "silu", ACTIVATIONS),
        Key("hidden_dropout_prob", "dropout", 0.0, also=("resid_pdrop",)),
        Key("attention_probs_dropout_prob", "attention_dropout", 0.0, also=("attn_pdrop",)),
        Key("max_position_embeddings", "max_positions", 2048, also=("n_positions",)),
        Key("type_vocab_size", "token_types", 2),
        Key("layer_norm_eps", "eps", 1e-12, also=("layer_norm_epsilon",)),
        Key("tie_word_embeddings", "tied", True),
        NomicRope(),
    ),
    places=places("encoder"),
    names=reading(NAMES),
    harmless={
        # Of the published configurations: other layers that their code could build …
        **dict.fromkeys(("prenorm", "parallel_block", "parallel_block_tied_norm", "qkv_proj_bias"), False),
        **dict.fromkeys(("mlp_fc1_bias", "mlp_fc2_bias", "use_rms_norm", "causal", "rotary_emb_interleaved"), False),
        "scale_attn_weights": True,
        **dict.fromkeys(("scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"), False),
        # … and how it computes, pads the vocabulary, and drops in training.
        **dict.fromkeys(("use_flash_attn", "fused_dropout_add_ln", "fused_bias_fc", "use_xentropy", "embd_pdrop"), ANY),
        **dict.fromkeys(("pad_vocab_size_multiple", "dense_seq_output", "last_layer_subset"), ANY),
        **dict.fromkeys(("add_pooling_layer", "summary_activation", "summary_first_dropout"), ANY),
        **dict.fromkeys(("summary_proj_to_labels", "summary_type", "summary_use_proj", "mlp_act"), ANY),
    },
)
