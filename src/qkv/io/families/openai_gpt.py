"""GPT (Radford et al. 2018): a post-norm decoder with learned positions, a tied head and no norm at its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...nn.layers.norm import NoNorm
from ...nn.models.initialization import Normal
from ...nn.models.transformer import Transformer
from ..hub.family import Class, Table
from ..hub.keys import ANY, Key, changed
from .classes import BARE, LAST, classifier
from .factories import alike, based_on
from .gpt2 import FAMILY as GPT2
from .gpt2 import FIELDS, SUMMARY, gpt
from .gpt2 import names as gpt2_names


@based_on(gpt, without=("n_kv_heads", "d_ff", "bias"), vocab_size=40478, max_positions=512)
def openai_gpt(*, attention_dropout: float = 0.1, embedding_dropout: float = 0.1, **sizes: Any) -> Transformer:
    """GPT-2 post-norm, without a norm at its end; the feed-forward layer is 4 · d_model wide."""
    spec = gpt(**sizes, attention_dropout=attention_dropout, embedding_dropout=embedding_dropout)
    decoder = alike(spec.output, {"placement": "post"}).replace(norm=NoNorm())
    return spec.replace(decoder=decoder, initialization=Normal(scale_residual=False))


SIZES: dict[str, dict[str, Any]] = {"openai-gpt": {}}

_RENAMED = {"transformer.wte.": "transformer.tokens_embed.", "transformer.wpe.": "transformer.positions_embed."}


def names(spec: Transformer) -> Table:
    """GPT-2's rows; the tables of tokens and of positions have other names."""
    rows = gpt2_names(spec)
    for old, new in _RENAMED.items():
        rows = tuple(row.renamed(old, new) for row in rows)
    return rows


FAMILY = replace(
    GPT2,
    model_type="openai-gpt",
    make=openai_gpt,
    classes={
        "OpenAIGPTLMHeadModel": Class(),
        "OpenAIGPTModel": BARE,
        "OpenAIGPTForSequenceClassification": classifier(LAST),
    },
    fields=changed(
        FIELDS,
        # Their "gelu" is the approximation by a hyperbolic tangent.
        Key("afn", "activation", "gelu", {"gelu": "gelu-tanh", "relu": "relu", "silu": "silu", "swish": "silu"}),
        without=("d_ff",),
        vocab_size=40478,
        n_positions=512,
    ),
    harmless={**dict.fromkeys(("n_ctx", "n_special", "predict_special_tokens"), ANY), **SUMMARY},
    names=names,
)
