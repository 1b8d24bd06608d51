"""Classes of the Hub that families have in common, and the names of their heads' tensors."""

from __future__ import annotations

from collections.abc import Callable

from ..hub.family import Class, Table
from ..hub.names import Row
from ..model.heads import SequenceClassifier, Span
from ..model.transformer import Transformer

SCORE = Row("score.weight", "head.out.weight")
"""The classifier of a decoder."""

ANSWERS = Row("qa_outputs.*", "head.out.*")
"""What says where an answer begins and ends."""

BERTS_DROPOUT = {"classifier_dropout": None, "hidden_dropout_prob": 0.1}


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


def answering(table: Table) -> Callable[[Transformer], Table]:
    """A table of names with that of a head of spans in it, for specs that have one."""
    return lambda spec: (ANSWERS, *table) if isinstance(spec.head, Span) else table
