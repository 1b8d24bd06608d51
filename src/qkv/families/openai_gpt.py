"""GPT (Radford et al. 2018): a post-norm decoder with learned positions, a tied head and no norm at its end."""

from __future__ import annotations

from typing import Any

from ..attention.multi_head import Attention
from ..hub.family import Class, Family, Table
from ..hub.keys import ANY, Key, changed
from ..layers.embedding import Embedding
from ..layers.feedforward import Activation, FeedForward
from ..layers.norm import LayerNorm
from ..models.block import Block
from ..models.heads.sequence import SequenceClassifier
from ..models.heads.text import LanguageModel
from ..models.initialization import Normal
from ..models.stack import Stack
from ..models.transformer import Transformer
from ..patterns.basic import causal
from ..positions.absolute import Learned
from ..positions.base import Position
from .gpt2 import FIELDS
from .gpt2 import names as gpt2_names
from .places import places


def openai_gpt(
    *,
    vocab_size: int = 40478,
    d_model: int = 768,
    n_layers: int = 12,
    n_heads: int = 12,
    activation: Activation = "gelu-tanh",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    embedding_dropout: float = 0.1,
    eps: float = 1e-5,
    tied: bool = True,
    position: Position | None = None,
    max_positions: int = 512,
    head: bool = True,
) -> Transformer:
    """A decoder-only language model; the feed-forward layer is 4 · d_model wide."""
    block = Block(
        attention=Attention(n_heads=n_heads, pattern=causal(), dropout=attention_dropout),
        feedforward=FeedForward(d_ff=4 * d_model, activation=activation),
        norm=LayerNorm(eps=eps),
        placement="post",
        dropout=dropout,
    )
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        decoder=Stack(
            embedding=Embedding(dropout=embedding_dropout), position=position or Learned(), blocks=(block,) * n_layers
        ),
        head=LanguageModel(tied=tied) if head else None,
        initialization=Normal(scale_residual=False),
    )


SIZES: dict[str, dict[str, Any]] = {"openai-gpt": {}}

_RENAMED = {"transformer.wte.": "transformer.tokens_embed.", "transformer.wpe.": "transformer.positions_embed."}


def names(spec: Transformer) -> Table:
    """GPT-2's rows; the tables of tokens and of positions have other names."""
    table = []
    for row in gpt2_names(spec):
        theirs = row.theirs
        for old, new in _RENAMED.items():
            theirs = theirs.replace(old, new)
        table.append(type(row)(theirs, row.ours, row.how))
    return tuple(table)


FAMILY = Family(
    model_type="openai-gpt",
    make=openai_gpt,
    classes={
        "OpenAIGPTLMHeadModel": Class(),
        "OpenAIGPTModel": Class({"head": False}, bare=True),
        "OpenAIGPTForSequenceClassification": Class(
            {"head": False}, head=SequenceClassifier(pool="last", activation=None, bias=False)
        ),
    },
    prefix="transformer.",
    fields=changed(
        tuple(f for f in FIELDS if f.size != "d_ff"),
        Key("vocab_size", "vocab_size", 40478),
        Key("n_positions", "max_positions", 512, also=("max_position_embeddings",)),
        # Their "gelu" is the approximation by a hyperbolic tangent.
        Key("afn", "activation", "gelu", {"gelu": "gelu-tanh", "relu": "relu", "silu": "silu", "swish": "silu"}),
    ),
    places=places("decoder"),
    harmless={
        **dict.fromkeys(("n_ctx", "n_special", "predict_special_tokens"), ANY),
        # What a summary of the sequence would be, for the class with two heads.
        **dict.fromkeys(("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels"), ANY),
        "summary_first_dropout": ANY,
    },
    names=names,
)
