"""BigBird (Zaheer et al. 2020): BERT for long texts, with attention between neighboring, global and random blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..attention.bigbird import BlockSparseAttention
from ..attention.multi_head import Attention
from ..hub.family import Class, Family
from ..hub.keys import ACTIVATIONS, Config, Key, changed
from ..hub.names import Row
from ..hub.values import shown
from ..layers.feedforward import Activation, FeedForward
from ..layers.norm import LayerNorm
from ..models.heads.sequence import SequenceClassifier
from ..models.heads.text import Span
from ..models.transformer import Transformer
from ..patterns.basic import Full, Pattern
from ..patterns.bigbird import BigBird
from ..positions.base import Position
from .bert import FIELDS, NAMES, PLACES, POOLED, PRETRAINING, bert, legacy
from .classes import BERTS_DROPOUT, dense, reading, tagger
from .places import Place


def bigbird(
    *,
    vocab_size: int = 50358,
    d_model: int = 768,
    n_layers: int = 12,
    n_heads: int = 12,
    d_ff: int = 3072,
    activation: Activation = "gelu-tanh",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    attention_bias: bool = True,
    eps: float = 1e-12,
    token_types: int = 2,
    tied: bool = True,
    position: Position | None = None,
    max_positions: int = 4096,
    embedding_scale: Literal["none", "sqrt"] = "none",
    pattern: Pattern | None = None,
    head: bool = True,
    pooler: bool = True,
    labels: int = 0,
    classifier: bool = False,
    answers: bool = False,
) -> Transformer:
    """BERT with a pattern of blocks, whose random ones each layer draws with its number as the seed; or with another.

    `classifier` puts one of sequences in the head's place, `answers` what says where an answer begins and ends.
    """
    pattern = pattern or BigBird()
    spec = bert(
        vocab_size=vocab_size,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        d_ff=d_ff,
        activation=activation,
        dropout=dropout,
        eps=eps,
        token_types=token_types,
        tied=tied,
        position=position,
        max_positions=max_positions,
        head=head,
        pooler=pooler,
        labels=labels,
    )
    told: dict[str, Any] = {
        "n_heads": n_heads,
        "dropout": attention_dropout,
        "bias": attention_bias,
        "out_bias": True,
    }
    changes: dict[str, Any] = {"encoder.embedding.scale": embedding_scale}
    for i in range(n_layers):
        changes[f"encoder.blocks.{i}.attention"] = (
            BlockSparseAttention(**told, pattern=pattern.replace(seed=i, longest=max_positions))
            if isinstance(pattern, BigBird)
            else Attention(**told, pattern=pattern)
        )
    if classifier:
        changes["head"] = SequenceClassifier(activation=activation)
    if answers:
        layer = FeedForward(d_ff=d_ff, activation=activation)
        changes["head"] = Span(feedforward=layer, norm=LayerNorm(eps=eps), dropout=dropout)
    return spec.replace(changes)


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
            raise ValueError(f"{KIND} is 'block_sparse' or 'original_full', not {shown(config[KIND])}")
        return BigBird(size=config[SIZE], random=config[RANDOM]) if config[KIND] == "block_sparse" else Full()

    def write(self, value: Pattern, sizes: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(value, BigBird):
            return {KIND: "block_sparse", SIZE: value.size, RANDOM: value.random}
        if isinstance(value, Full):
            return {KIND: "original_full"}
        raise ValueError(f"its pattern is of blocks or full, and this model's is {value}")


_OWN: dict[str, Place] = {
    "pattern": "encoder.blocks.0.attention.pattern",
    "embedding_scale": "encoder.embedding.scale",
}

FAMILY = Family(
    model_type="big_bird",
    make=bigbird,
    classes={
        "BigBirdForMaskedLM": Class(),
        "BigBirdForPreTraining": Class(PRETRAINING),
        "BigBirdModel": Class(POOLED, bare=True, optional=("pooler",)),
        "BigBirdForSequenceClassification": Class({"classifier": True}, dropout=BERTS_DROPOUT),
        "BigBirdForQuestionAnswering": Class({**POOLED, "answers": True}, optional=("pooler",)),
        **tagger("BigBird", BERTS_DROPOUT),
    },
    prefix="bert.",
    fields=changed(
        FIELDS,
        Key("vocab_size", "vocab_size", 50358),
        Key("hidden_act", "activation", "gelu_new", ACTIVATIONS),
        Key("max_position_embeddings", "max_positions", 4096),
        Key("use_bias", "attention_bias", True),
        Key("rescale_embeddings", "embedding_scale", False, {True: "sqrt", False: "none"}),
        Blocks(),
    ),
    places={**PLACES, **_OWN},
    names=reading(
        (
            *(
                Row(row.theirs.replace("bert.pooler.dense.", "bert.pooler."), row.ours, row.how)
                for row in (*NAMES, *legacy(NAMES))
                if not row.ours.startswith(("head.dense", "head.out"))
            ),
            *dense("classifier"),
            Row("qa_classifier.intermediate.dense.*", "head.feedforward.up.*"),
            Row("qa_classifier.output.dense.*", "head.feedforward.down.*"),
            Row("qa_classifier.output.LayerNorm.*", "head.norm.*"),
        ),
        answers=Row("qa_classifier.qa_outputs.*", "head.out.*"),
    ),
    harmless={"position_embedding_type": "absolute"},
)
