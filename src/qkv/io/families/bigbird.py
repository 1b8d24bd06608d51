"""BigBird (Zaheer et al. 2020): BERT for long texts, with attention between neighboring, global and random blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ...core.spec import brief
from ...nn.attention.bigbird import BlockSparseAttention
from ...nn.attention.multi_head import Attention
from ...nn.layers.feedforward import FeedForward
from ...nn.layers.norm import LayerNorm
from ...nn.models.heads.sequence import SequenceClassifier
from ...nn.models.heads.text import Span
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import Full, Pattern
from ...nn.patterns.bigbird import BigBird
from ..hub.family import Class
from ..hub.keys import Config, Key, changed
from ..hub.names import Row
from .bert import FAMILY as BERT
from .bert import FIELDS, PLACES, PREDICTIONS, PRETRAINING, bert, body
from .classes import BERTS_DROPOUT, POOLED, dense, reading, tagger
from .factories import based_on


@based_on(bert, vocab_size=50358, activation="gelu-tanh", max_positions=4096, pooler=True)
def bigbird(
    *,
    attention_bias: bool = True,
    embedding_scale: Literal["none", "sqrt"] = "none",
    pattern: Pattern | None = None,
    classifier: bool = False,
    answers: bool = False,
    **sizes: Any,
) -> Transformer:
    """BERT with a pattern of blocks, whose random ones each layer draws with its number as the seed; or with another.

    `classifier` replaces the head by a classifier of sequences, `answers` by one that finds where an answer begins and ends.
    """
    pattern, activation = pattern or BigBird(), sizes["activation"]
    common: dict[str, Any] = {
        "n_heads": sizes["n_heads"],
        "dropout": sizes["attention_dropout"],
        "bias": attention_bias,
        "out_bias": True,
    }
    changes: dict[str, Any] = {"encoder.embedding.scale": embedding_scale}
    for i in range(sizes["n_layers"]):
        changes[f"encoder.blocks.{i}.attention"] = (
            BlockSparseAttention(**common, pattern=pattern.replace(seed=i, longest=sizes["max_positions"]))
            if isinstance(pattern, BigBird)
            else Attention(**common, pattern=pattern)
        )
    if classifier:
        changes["head"] = SequenceClassifier(activation=activation)
    if answers:
        layer = FeedForward(d_ff=sizes["d_ff"], activation=activation)
        changes["head"] = Span(feedforward=layer, norm=LayerNorm(eps=sizes["eps"]), dropout=sizes["dropout"])
    return bert(**sizes).replace(changes)


SIZES: dict[str, dict[str, Any]] = {
    "bigbird-roberta-base": {"labels": 2},
    "bigbird-roberta-large": {"labels": 2, "d_model": 1024, "n_layers": 24, "n_heads": 16, "d_ff": 4096},
}

KIND, SIZE, RANDOM = "attention_type", "block_size", "num_random_blocks"


@dataclass(frozen=True)
class Blocks:
    """The field `pattern`: the blocks, or no blocks at all."""

    size: str = "pattern"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {KIND: "block_sparse", SIZE: 64, RANDOM: 3}

    def read(self, config: Config) -> Pattern:
        if config[KIND] not in ("block_sparse", "original_full"):
            raise ValueError(f"{KIND} is 'block_sparse' or 'original_full', not {brief(config[KIND])}")
        return BigBird(size=config[SIZE], random=config[RANDOM]) if config[KIND] == "block_sparse" else Full()

    def write(self, value: Pattern, sizes: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(value, BigBird):
            return {KIND: "block_sparse", SIZE: value.size, RANDOM: value.random}
        if isinstance(value, Full):
            return {KIND: "original_full"}
        raise ValueError(f"its pattern is of blocks or full, and this model's is {value}")


FAMILY = replace(
    BERT,
    model_type="big_bird",
    make=bigbird,
    classes={
        "BigBirdForMaskedLM": Class(),
        "BigBirdForPreTraining": Class(PRETRAINING),
        "BigBirdModel": POOLED,
        "BigBirdForSequenceClassification": Class({"classifier": True}, dropout=BERTS_DROPOUT),
        "BigBirdForQuestionAnswering": Class({**POOLED.sizes, "answers": True}, may_lack_pooler=True),
        **tagger("BigBird", BERTS_DROPOUT),
    },
    fields=changed(
        FIELDS,
        Key("use_bias", "attention_bias", True),
        Key("rescale_embeddings", "embedding_scale", False, {True: "sqrt", False: "none"}),
        Blocks(),
        vocab_size=50358,
        hidden_act="gelu_new",
        max_position_embeddings=4096,
    ),
    places={**PLACES, "pattern": "encoder.blocks.0.attention.pattern", "embedding_scale": "encoder.embedding.scale"},
    names=reading(
        (
            *(row.renamed("bert.pooler.dense.", "bert.pooler.") for row in body("bert")),
            *PREDICTIONS,
            *dense("classifier"),
            Row("qa_classifier.intermediate.dense.*", "head.feedforward.up.*"),
            Row("qa_classifier.output.dense.*", "head.feedforward.down.*"),
            Row("qa_classifier.output.LayerNorm.*", "head.norm.*"),
        ),
        answers=Row("qa_classifier.qa_outputs.*", "head.out.*"),
    ),
)
