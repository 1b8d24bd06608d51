"""MPNet (Song et al. 2020): RoBERTa without segments, with T5's relative buckets beside its learned positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...nn.models.transformer import Transformer
from ...nn.positions.absolute import Learned
from ...nn.positions.bias import T5Buckets
from ..hub.keys import Config, changed
from ..hub.names import Row
from .bert import FAMILY as BERT
from .bert import FIELDS
from .classes import encoders, reading
from .factories import alike, based_on
from .places import places
from .roberta import HEADS, LONGEST, Longest, roberta

BUCKETS = T5Buckets(bidirectional=True)
"""Whatever `relative_attention_num_buckets` is: transformers has the numbers 32 and 128 in its code."""


@based_on(roberta, without=("token_types", "position"), vocab_size=30527)
def mpnet(**sizes: Any) -> Transformer:
    """RoBERTa without segments; all layers share one table of relative buckets."""
    spec = roberta(**sizes, token_types=0, position=Learned(offset=2))
    return spec.replace(encoder=alike(spec.output, {"position": BUCKETS}))


SIZES: dict[str, dict[str, Any]] = {"mpnet-base": {"eps": 1e-5}}


class FromTwo(Longest):
    """The field `max_positions`: the first position is the third row, whatever the padding token's id."""

    def read(self, config: Config) -> int:
        if config[LONGEST] < 3:
            raise ValueError(f"{LONGEST} is {config[LONGEST]}, and the first position is the third: it is at least 3")
        return int(config[LONGEST]) - 2

    def write(self, value: object, sizes: Mapping[str, Any]) -> dict[str, Any]:
        assert isinstance(value, int)
        return {LONGEST: value + 2}


LAYER, BLOCK = "mpnet.encoder.layer.{i}", "encoder.blocks.{i}"
BODY = (
    Row("mpnet.embeddings.word_embeddings.weight", "encoder.embedding.weight"),
    Row("mpnet.embeddings.position_embeddings.weight", "encoder.position.weight"),
    Row("mpnet.embeddings.LayerNorm.*", "encoder.embedding.norm.*"),
    Row("mpnet.encoder.relative_attention_bias.weight", "encoder.block_positions.0.weight"),
    Row(f"{LAYER}.attention.attn.[q,k,v,o].*", f"{BLOCK}.attention.[q,k,v,out].*"),
    Row(f"{LAYER}.attention.LayerNorm.*", f"{BLOCK}.norm.attention.*"),
    Row(f"{LAYER}.intermediate.dense.*", f"{BLOCK}.feedforward.up.*"),
    Row(f"{LAYER}.output.dense.*", f"{BLOCK}.feedforward.down.*"),
    Row(f"{LAYER}.output.LayerNorm.*", f"{BLOCK}.norm.feedforward.*"),
    Row("mpnet.pooler.dense.*", "classification_head.dense.*"),
    Row("mpnet.embeddings.position_ids", ""),
)

FAMILY = replace(
    BERT,
    model_type="mpnet",
    make=mpnet,
    classes=encoders("MPNet", {"hidden_dropout_prob": 0.1}),
    prefix="mpnet.",
    fields=changed(FIELDS, FromTwo(), without=("token_types",), vocab_size=30527),
    places={size: place for size, place in places("encoder").items() if size not in ("token_types", "position")},
    harmless={"relative_attention_num_buckets": BUCKETS.buckets, "position_embedding_type": "absolute"},
    names=reading((*BODY, *HEADS)),
)
