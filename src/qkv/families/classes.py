"""Classes of the Hub that families have in common, and the names of their heads' tensors."""

from __future__ import annotations

from ..hub.family import Class
from ..hub.names import Row
from ..model.heads import SequenceClassifier

SCORE = Row("score.weight", "head.out.weight")
"""The classifier of a decoder."""

BERTS_DROPOUT = ("classifier_dropout", "hidden_dropout_prob")


def decoders(name: str, head: str = "ForCausalLM") -> dict[str, Class]:
    """A decoder with a language model's head, without a head, and with a classifier that reads the last token."""
    last = SequenceClassifier(pool="last", activation=None, bias=False)
    return {
        f"{name}{head}": Class(),
        f"{name}Model": Class({"head": False}, bare=True),
        f"{name}ForSequenceClassification": Class({"head": False}, head=last),
    }


def dense(theirs: str) -> tuple[Row, ...]:
    """The names of a classifier with a layer before its scores."""
    return Row(f"{theirs}.dense.*", "head.dense.*"), Row(f"{theirs}.out_proj.*", "head.out.*")
