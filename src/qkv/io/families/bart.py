"""BART (Lewis et al. 2020): the original encoder–decoder with learned positions and normed embeddings; Marian's kin too."""

from __future__ import annotations

from typing import Any

from ...nn.attention.multi_head import Attention
from ...nn.layers.embedding import Embedding
from ...nn.layers.feedforward import Activation, FeedForward
from ...nn.layers.norm import LayerNorm, NoNorm
from ...nn.models.block import Block
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.heads.sequence import SequenceClassifier
from ...nn.models.heads.text import Span
from ...nn.models.initialization import Normal
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import causal
from ...nn.positions.absolute import Learned
from ...nn.positions.base import Position
from ..hub.family import Class, Family, at
from ..hub.keys import ACTIVATIONS, ANY, Field, Key, LabelCount
from ..hub.names import Row
from ..hub.transforms import Shaped
from .classes import BARE, answering, classifier, dense
from .places import Place


def bart(
    *,
    vocab_size: int = 50265,
    d_model: int = 1024,
    n_layers: int = 12,
    n_heads: int = 16,
    d_ff: int = 4096,
    encoder_layers: int | None = None,
    decoder_layers: int | None = None,
    encoder_heads: int | None = None,
    decoder_heads: int | None = None,
    encoder_d_ff: int | None = None,
    decoder_d_ff: int | None = None,
    activation: Activation = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    activation_dropout: float = 0.0,
    scaled: bool = False,
    normed: bool = True,
    pre_norm: bool = False,
    output_bias: bool = True,
    position: Position | None = None,
    max_positions: int = 1024,
    head: bool = True,
) -> Transformer:
    """An encoder–decoder with one table for source, target and output.

    By default, each stack has the common sizes. `scaled` multiplies embeddings by √d_model, `normed` has a norm after
    them, `pre_norm` has norms before sublayers and at the end of each stack, and `output_bias` adds a bias to the logits.
    """

    def stack(layers: int, heads: int, d_ff: int, crosses: bool) -> Stack:
        attention = Attention(n_heads=heads, dropout=attention_dropout)
        block = Block(
            attention=attention.replace(pattern=causal()) if crosses else attention,
            cross=attention if crosses else None,
            feedforward=FeedForward(d_ff=d_ff, activation=activation, dropout=activation_dropout),
            placement="pre" if pre_norm else "post",
            dropout=dropout,
        )
        embedding = Embedding(
            scale="sqrt" if scaled else "none", norm=LayerNorm() if normed else NoNorm(), dropout=dropout
        )
        norm = LayerNorm() if pre_norm else NoNorm()
        return Stack(embedding=embedding, position=position or Learned(offset=2), blocks=(block,) * layers, norm=norm)

    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        encoder=stack(encoder_layers or n_layers, encoder_heads or n_heads, encoder_d_ff or d_ff, False),
        decoder=stack(decoder_layers or n_layers, decoder_heads or n_heads, decoder_d_ff or d_ff, True),
        head=LanguageModel(bias=output_bias) if head else None,
        initialization=Normal(scale_residual=False),
    )


SIZES: dict[str, dict[str, Any]] = {
    "bart-base": {"d_model": 768, "n_layers": 6, "n_heads": 12, "d_ff": 3072},
    "bart-large": {},
}

FIELDS: tuple[Field, ...] = (
    Key("vocab_size", "vocab_size", 50265),
    Key("d_model", "d_model", 1024, also=("hidden_size",)),
    Key("encoder_layers", "encoder_layers", 12),
    Key("decoder_layers", "decoder_layers", 12),
    Key("encoder_attention_heads", "encoder_heads", 16),
    Key("decoder_attention_heads", "decoder_heads", 16),
    Key("encoder_ffn_dim", "encoder_d_ff", 4096),
    Key("decoder_ffn_dim", "decoder_d_ff", 4096),
    Key("activation_function", "activation", "gelu", ACTIVATIONS),
    Key("dropout", "dropout", 0.1),
    Key("attention_dropout", "attention_dropout", 0.0),
    Key("activation_dropout", "activation_dropout", 0.0),
    Key("scale_embedding", "scaled", False),
    Key("max_position_embeddings", "max_positions", 1024),
)

PLACES: dict[str, Place] = {
    "encoder_layers": "encoder.n_layers",
    "decoder_layers": "decoder.n_layers",
    "encoder_heads": "encoder.blocks.0.attention.n_heads",
    "decoder_heads": "decoder.blocks.0.attention.n_heads",
    "encoder_d_ff": "encoder.blocks.0.feedforward.d_ff",
    "decoder_d_ff": "decoder.blocks.0.feedforward.d_ff",
    "activation": "encoder.blocks.0.feedforward.activation",
    "dropout": "encoder.blocks.0.dropout",
    "attention_dropout": "encoder.blocks.0.attention.dropout",
    "activation_dropout": "encoder.blocks.0.feedforward.dropout",
    "scaled": lambda spec: at(spec, "encoder.embedding.scale") == "sqrt",
}

HARMLESS: dict[str, Any] = {
    "tie_word_embeddings": True,
    "num_hidden_layers": ANY,  # the encoder's layers, once more
    "encoder_layerdrop": ANY,  # layers dropped in training
    "decoder_layerdrop": ANY,
    "init_std": ANY,
    "classif_dropout": ANY,
    "gradient_checkpointing": ANY,
    "normalize_before": False,
    "add_final_layer_norm": False,
    "add_bias_logits": False,
    "extra_pos_embeddings": 2,
    "force_bos_token_to_be_generated": ANY,  # a setting of generation
}


def _layers(stack: str) -> tuple[Row, ...]:
    layer, block = f"model.{stack}.layers.{{i}}", f"{stack}.blocks.{{i}}"
    return (
        Row(f"{layer}.self_attn.[q,k,v,out]_proj.*", f"{block}.attention.[q,k,v,out].*"),
        Row(f"{layer}.self_attn_layer_norm.*", f"{block}.norm.attention.*"),
        Row(f"{layer}.encoder_attn.[q,k,v,out]_proj.*", f"{block}.cross.[q,k,v,out].*"),
        Row(f"{layer}.encoder_attn_layer_norm.*", f"{block}.norm.cross.*"),
        Row(f"{layer}.fc1.*", f"{block}.feedforward.up.*"),
        Row(f"{layer}.fc2.*", f"{block}.feedforward.down.*"),
        Row(f"{layer}.final_layer_norm.*", f"{block}.norm.feedforward.*"),
    )


NAMES = (
    Row("model.shared.weight", "encoder.embedding.weight"),
    Row("model.encoder.embed_tokens.weight", "encoder.embedding.weight"),
    Row("model.decoder.embed_tokens.weight", "decoder.embedding.weight"),
    *_layers("encoder"),
    *_layers("decoder"),
    Row("final_logits_bias", "head.bias", Shaped((1, -1)), zero=True),  # old files lack it
    Row("lm_head.weight", "head.weight"),
)

TABLE = (
    *NAMES,
    Row("model.[encoder,decoder].embed_positions.weight", "[encoder,decoder].position.weight"),
    Row("model.[encoder,decoder].layernorm_embedding.*", "[encoder,decoder].embedding.norm.*"),
    *dense("classification_head"),
)

FAMILY = Family(
    model_type="bart",
    make=bart,
    classes={
        "BartForConditionalGeneration": Class(),
        "BartModel": BARE,
        "BartForSequenceClassification": classifier(
            SequenceClassifier(pool="last"), {"classifier_dropout": None, "classif_dropout": 0.0}
        ),
        "BartForQuestionAnswering": classifier(Span()),
    },
    labels=LabelCount(usual=3),
    prefix="model.",
    is_encoder_decoder=True,
    fields=FIELDS,
    places=PLACES,
    harmless={**HARMLESS, "normalize_embedding": True, "static_position_embeddings": False},
    names=answering(TABLE),
)
