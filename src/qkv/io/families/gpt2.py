"""GPT-2 (Radford et al. 2019) and GPT-3 (Brown et al. 2020): a pre-norm decoder with learned positions and a tied head."""

from __future__ import annotations

from typing import Any

from ...nn.attention.multi_head import Attention
from ...nn.layers.embedding import Embedding
from ...nn.layers.feedforward import Activation, FeedForward
from ...nn.layers.norm import LayerNorm
from ...nn.models.block import Block
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.initialization import Normal
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import causal
from ...nn.positions.absolute import Learned
from ...nn.positions.base import Position
from ..hub.family import Family, Table
from ..hub.keys import ACTIVATIONS, ANY, Field, Key
from ..hub.names import Row
from ..hub.transforms import Joined, TransformChain, Transposed
from .classes import decoders, scores
from .places import places


def gpt(
    *,
    vocab_size: int = 50257,
    d_model: int = 768,
    n_layers: int = 12,
    n_heads: int = 12,
    n_kv_heads: int | None = None,
    d_ff: int | None = None,
    activation: Activation = "gelu-tanh",
    dropout: float = 0.1,
    attention_dropout: float | None = None,
    embedding_dropout: float | None = None,
    bias: bool = True,
    eps: float = 1e-5,
    tied: bool = True,
    position: Position | None = None,
    max_positions: int = 1024,
    head: bool = True,
) -> Transformer:
    """A decoder-only language model, GPT-2's; d_ff is 4 · d_model by default, the other dropouts are as the first."""
    norm = LayerNorm(eps=eps, bias=bias)
    block = Block(
        attention=Attention(
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            bias=bias,
            pattern=causal(),
            dropout=dropout if attention_dropout is None else attention_dropout,
        ),
        feedforward=FeedForward(d_ff=d_ff or 4 * d_model, activation=activation, bias=bias),
        norm=norm,
        dropout=dropout,
    )
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        decoder=Stack(
            embedding=Embedding(dropout=dropout if embedding_dropout is None else embedding_dropout),
            position=position or Learned(),
            blocks=(block,) * n_layers,
            norm=norm,
        ),
        head=LanguageModel(tied=tied) if head else None,
        initialization=Normal(),
    )


# Brown et al. (2020), table 2.1. Its XL has 24 heads of 128 and its 13B a width of 5,140; the parameters in its table D.1
# (1,320 M and 12,850 M) need 16 heads and a width of 5,120. Every other layer of GPT-3 attends in a band whose width is not
# published; the layers here are all dense, so the FLOPs of attention are an upper bound.
GPT3 = (
    ("small", 12, 768, 12),
    ("medium", 24, 1024, 16),
    ("large", 24, 1536, 16),
    ("xl", 24, 2048, 16),
    ("2.7b", 32, 2560, 32),
    ("6.7b", 32, 4096, 32),
    ("13b", 40, 5120, 40),
    ("175b", 96, 12288, 96),
)

SIZES: dict[str, dict[str, Any]] = {
    "gpt": {},  # GPT-2, to begin other sizes from; GPT of 2018 is openai-gpt
    "gpt2": {},
    "gpt2-medium": {"d_model": 1024, "n_layers": 24, "n_heads": 16},
    "gpt2-large": {"d_model": 1280, "n_layers": 36, "n_heads": 20},
    "gpt2-xl": {"d_model": 1600, "n_layers": 48, "n_heads": 25},
    **{
        f"gpt3-{name}": {"d_model": width, "n_layers": layers, "n_heads": heads, "max_positions": 2048}
        for name, layers, width, heads in GPT3
    },
}

FIELDS: tuple[Field, ...] = (
    Key("vocab_size", "vocab_size", 50257),
    Key("n_positions", "max_positions", 1024, also=("max_position_embeddings",)),
    Key("n_embd", "d_model", 768, also=("hidden_size",)),
    Key("n_layer", "n_layers", 12, also=("num_hidden_layers",)),
    Key("n_head", "n_heads", 12, also=("num_attention_heads",)),
    Key("n_inner", "d_ff", None),
    Key("activation_function", "activation", "gelu_new", ACTIVATIONS),
    Key("resid_pdrop", "dropout", 0.1),
    Key("embd_pdrop", "embedding_dropout", 0.1),
    Key("attn_pdrop", "attention_dropout", 0.1),
    Key("layer_norm_epsilon", "eps", 1e-5),
    Key("tie_word_embeddings", "tied", True),
)

SUMMARY = dict.fromkeys(
    ("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"), ANY
)
"""Keys of the summary of a sequence, in classes with two heads."""


def names(spec: Transformer) -> Table:
    """The rows; queries, keys and values are fused, and matrices stand transposed."""
    return (
        Row("transformer.wte.weight", "decoder.embedding.weight"),
        Row("transformer.wpe.weight", "decoder.position.weight"),
        Row("transformer.h.{i}.ln_1.*", "decoder.blocks.{i}.norm.attention.*"),
        Row(
            "transformer.h.{i}.attn.c_attn.*",
            "decoder.blocks.{i}.attention.[q,k,v].*",
            TransformChain(Transposed(), Joined()),
        ),
        Row("transformer.h.{i}.attn.c_proj.*", "decoder.blocks.{i}.attention.out.*", Transposed()),
        Row("transformer.h.{i}.ln_2.*", "decoder.blocks.{i}.norm.feedforward.*"),
        Row("transformer.h.{i}.mlp.c_fc.*", "decoder.blocks.{i}.feedforward.up.*", Transposed()),
        Row("transformer.h.{i}.mlp.c_proj.*", "decoder.blocks.{i}.feedforward.down.*", Transposed()),
        Row("transformer.ln_f.*", "decoder.norm.*"),
        Row("lm_head.weight", "head.weight"),
        scores(spec),
        Row("transformer.h.{i}.attn.bias", ""),  # the causal mask, in old files
        Row("transformer.h.{i}.attn.masked_bias", ""),
    )


FAMILY = Family(
    model_type="gpt2",
    make=gpt,
    classes=decoders("GPT2", "LMHeadModel"),
    prefix="transformer.",
    fields=FIELDS,
    places=places("decoder"),
    harmless={
        "n_ctx": ANY,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": ANY,  # another order of the same computation
        **SUMMARY,
    },
    names=names,
)
