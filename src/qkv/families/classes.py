"""Classes of the Hub that families have in common, and the names of their heads' tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..hub.family import Class, Table
from ..hub.names import Row
from ..models.heads.sequence import SequenceClassifier
from ..models.heads.text import Head, Span, TokenClassifier
from ..models.transformer import Transformer

SCORE = Row("score.*", "head.out.*")
"""The classifier of a decoder: of sequences, and in Llama and its kin of tokens too."""

ANSWERS = Row("qa_outputs.*", "head.out.*")
"""What says where an answer begins and ends."""

TAGS = Row("classifier.*", "head.out.*")
"""What says the label of each token."""

BERTS_DROPOUT = {"classifier_dropout": None, "hidden_dropout_prob": 0.1}
DECODERS_DROPOUT = {"classifier_dropout": None, "hidden_dropout": 0.1}


def decoders(
    name: str, head: str = "ForCausalLM", dropout: Mapping[str, float | None] = DECODERS_DROPOUT
) -> dict[str, Class]:
    """A decoder with a language model's head, without a head, with a classifier that reads the last token, and with one of
    each token, whose `dropout` is here."""
    last = SequenceClassifier(pool="last", activation=None, bias=False)
    return {
        f"{name}{head}": Class(),
        f"{name}Model": Class({"head": False}, bare=True),
        f"{name}ForSequenceClassification": Class({"head": False}, head=last),
        **tagger(name, dropout, pooled=False),
    }


def scores(spec: Transformer) -> Row:
    """The classifier of a decoder whose name tells what it is of: tokens, or the last one."""
    return TAGS if isinstance(spec.head, TokenClassifier) else SCORE


def dense(theirs: str) -> tuple[Row, ...]:
    """The names of a classifier with a layer before its scores."""
    return Row(f"{theirs}.dense.*", "head.dense.*"), Row(f"{theirs}.out_proj.*", "head.out.*")


def tagger(name: str, dropout: Mapping[str, float | None], pooled: bool = True) -> dict[str, Class]:
    """A stack with scores of each label for each token. A file may hold the pooler that the model was trained with."""
    return {f"{name}ForTokenClassification": _reader(TokenClassifier(), pooled, dropout)}


def readers(name: str, dropout: Mapping[str, float | None], pooled: bool = True) -> dict[str, Class]:
    """An encoder that labels tokens, and one that finds answers."""
    return {**tagger(name, dropout, pooled), f"{name}ForQuestionAnswering": _reader(Span(), pooled)}


def _reader(head: Head, pooled: bool, dropout: Mapping[str, float | None] | None = None) -> Class:
    sizes, may = ({"head": False, "pooler": True}, ("pooler",)) if pooled else ({"head": False}, ())
    return Class(sizes, optional=may, head=head, dropout=dropout or {})


def reading(table: Table, answers: Row = ANSWERS) -> Callable[[Transformer], Table]:
    """A table of names with those of what `readers` have on top, for specs that have it."""

    def names(spec: Transformer) -> Table:
        if isinstance(spec.head, Span):
            return (answers, *table)
        return (TAGS, *table) if isinstance(spec.head, TokenClassifier) else table

    return names
