"""Hub classes that families have in common, and the names of their heads' tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ...nn.models.heads.base import Head
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.heads.sequence import SequenceClassifier
from ...nn.models.heads.text import Span, TokenClassifier
from ...nn.models.transformer import Transformer
from ..hub.family import Class, Table
from ..hub.names import Row

Dropout = Mapping[str, float | None]

SCORE = Row("score.*", "head.out.*")
"""The classifier of a decoder: of sequences, and in Llama-like families of tokens too."""

ANSWERS = Row("qa_outputs.*", "head.out.*")
"""The scores of where an answer begins and ends."""

TAGS = Row("classifier.*", "head.out.*")
"""The label scores of each token."""

BERTS_DROPOUT: Dropout = {"classifier_dropout": None, "hidden_dropout_prob": 0.1}
DECODERS_DROPOUT: Dropout = {"classifier_dropout": None, "hidden_dropout": 0.1}

BARE = Class({"head": False}, bare=True)
POOLED = Class({"head": False, "pooler": True}, bare=True, may_lack_pooler=True)
LAST = SequenceClassifier(pool="last", activation=None, bias=False)
"""The classifier of a decoder, which reads the last token."""


def classifier(head: Head, dropout: Dropout | None = None) -> Class:
    """A stack with a classifier of sequences or tokens in place of its head."""
    return Class({"head": False}, head=head, dropout=dropout or {})


def decoders(name: str, head: str = "ForCausalLM", dropout: Dropout = DECODERS_DROPOUT) -> dict[str, Class]:
    """The classes of a decoder: language model, bare model, classifier of sequences by their last token, and classifier of
    tokens, whose dropout keys are `dropout`."""
    return {
        f"{name}{head}": Class(),
        f"{name}Model": BARE,
        f"{name}ForSequenceClassification": classifier(LAST),
        **tagger(name, dropout, pooled=False),
    }


def encoders(name: str, dropout: Dropout, pooled: bool = True) -> dict[str, Class]:
    """The classes of an encoder: masked language model, bare model, classifiers of sequences and of tokens, and one that
    finds answers."""
    return {
        f"{name}ForMaskedLM": Class(),
        f"{name}Model": POOLED if pooled else BARE,
        f"{name}ForSequenceClassification": classifier(SequenceClassifier(), dropout),
        **tagger(name, dropout, pooled),
        f"{name}ForQuestionAnswering": _reader(Span(), pooled),
    }


def tagger(name: str, dropout: Dropout, pooled: bool = True) -> dict[str, Class]:
    """A stack with label scores for each token. A file may hold the pooler that the model was trained with."""
    return {f"{name}ForTokenClassification": _reader(TokenClassifier(), pooled, dropout)}


def _reader(head: Head, pooled: bool, dropout: Dropout | None = None) -> Class:
    if not pooled:
        return classifier(head, dropout)
    return Class({"head": False, "pooler": True}, may_lack_pooler=True, head=head, dropout=dropout or {})


def scores(spec: Transformer) -> Row:
    """The classifier of a decoder whose name differs for tokens and for sequences."""
    return TAGS if isinstance(spec.head, TokenClassifier) else SCORE


def dense(theirs: str) -> tuple[Row, ...]:
    """The names of a classifier with a dense layer before its scores."""
    return Row(f"{theirs}.dense.*", "head.dense.*"), Row(f"{theirs}.out_proj.*", "head.out.*")


def reading(table: Table, answers: Row = ANSWERS) -> Callable[[Transformer], Table]:
    """A table of names, with the head's names first for specs that label tokens or find answers, and with the bias that an
    untied head adds."""
    untied = _untied(table)

    def names(spec: Transformer) -> Table:
        if isinstance(spec.head, Span):
            return (answers, *table)
        if isinstance(spec.head, LanguageModel) and not spec.head.tied:
            return untied
        return (TAGS, *table) if isinstance(spec.head, TokenClassifier) else table

    return names


def answering(table: Table) -> Callable[[Transformer], Table]:
    """A decoder's table of names, with the head's name first for specs that find answers."""
    return lambda spec: (ANSWERS, *table) if isinstance(spec.head, Span) else table


def _untied(table: Table) -> Table:
    """A table for heads with their own matrix: of the two biases in files, `decoder.bias` is the one that is added, and
    the other is a copy of it only in a tied head."""
    rows = [row for row in table if row.ours == "head.bias"]
    if len(rows) < 2:
        return table
    tied, own = rows
    return (*(row for row in table if row not in rows), own, replace(tied, copied=True))
