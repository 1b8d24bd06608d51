"""The task `answer`: extractive question answering, the span of a text that answers a question (SQuAD)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from ....core.batch import Batch
from ....data.batching.numpy_batch import Array, NumpyBatch, PaddedLayout
from ....data.source import Example, Skipped, Source
from ....data.task import Item, Labels, RandomContext, Task
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....nn.layers.embedding import Input
from ..framing import frame_of, framed
from ..pieces import Pieces, pieces_of
from .metric import AnswerMetric


@dataclass(frozen=True, eq=False)
class ContextWindow(Item):
    """A row with a window of a context, its tokens `start` … `stop` − 1."""

    context: Pieces = field(kw_only=True)
    start: int = 0
    stop: int = 0


class Answer(Task, kind="answer"):
    """The model reads a question and a context, and predicts the first and the last token of the answer (Devlin et al. 2019,
    §4.2 and §4.3).

    An example has a `"question"`, a `"context"`, and its true `"answers"` with the index of their first characters in the
    context, the `"starts"`; the only answer "" means that there is none. A long context is read in windows. The label of a
    window without the whole answer is the first token of the row, as for a question without an answer.

    longest:        the most tokens in a row: the question, a window and special tokens.
    overlap:        the number of tokens that consecutive windows share.
    longest_answer: the most tokens in an answer.
    margin:         by how much the score of "no answer" must exceed that of the best span.
    unanswerable:   whether a question may have no answer; by default as in the training data.
    global_tokens:  which tokens have global attention, in a model that has it: tokens of the `question` and before it, the
                    default there (Longformer, Beltagy et al. 2020, §3); or `none`.
    """

    fields = ("question", "context", "answers")

    longest: int = Field(default=384, ge=16)
    overlap: int = Field(default=128, ge=0)
    longest_answer: int = Field(default=30, ge=1)
    margin: float = 0.0
    unanswerable: bool | None = None
    global_tokens: Literal["question", "none"] | None = None

    def with_global_tokens(self) -> Self:
        return self if self.global_tokens else self.replace(global_tokens="question")

    @model_validator(mode="after")
    def _moves(self) -> Self:
        if 2 * self.overlap >= self.longest:
            raise ValueError(
                f"windows of {self.longest} tokens overlap by less than half of them, not by {self.overlap}"
            )
        return self

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        if self.unanswerable is not None:
            return self
        examples = source.examples("train", shuffle=False)
        return self.replace(unanswerable=any(_answers(one, source)[0] == "" for one in examples))

    def texts(self, example: Example) -> Iterator[str]:
        yield from (example["question"], example["context"])

    def inputs_of(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Sequence[Item] | Skipped]:
        questions = pieces_of([example["question"] for example in examples], tokenizer)
        contexts = pieces_of([example["context"] for example in examples], tokenizer)
        items: list[Sequence[Item] | Skipped] = []
        for example, question, context in zip(examples, questions, contexts, strict=True):
            if not len(context):
                items.append(Skipped("without a token"))
            elif randomness.training and len(question) > self.longest // 4:
                items.append(Skipped("with a question that fills the row"))
            else:
                items.append(list(self._windows(example, question.ids[: self.longest // 4], context, tokenizer)))
        return items

    def _windows(
        self, example: Example, question: list[int], context: Pieces, tokenizer: Encoder | None
    ) -> Iterator[Item]:
        assert tokenizer is not None
        room = self.longest - frame_of(tokenizer, 2).size - len(question)
        places = np.stack([context.starts, context.ends], 1)
        start = 0
        while True:
            stop = min(start + room, len(context))
            row = framed(tokenizer, question, context.ids[start:stop])
            at = row.spans[1][0]
            about = {**example, "asked": row.spans[0][1], "at": at, "spans": places[start:stop].tolist()}
            arrays: dict[str, Array] = {"ids": row.ids, "token_types": row.token_types}
            yield ContextWindow(arrays, example=about, context=context, start=start, stop=stop)
            if stop == len(context):
                return
            start += room - self.overlap

    def labels(self, example: Example, inputs: Item) -> Labels | Skipped:
        assert isinstance(inputs, ContextWindow)
        span = _tokens_of(example["answers"][0], example["starts"][0], inputs.context)
        if span is None or span[0] < inputs.start or span[1] >= inputs.stop:
            return np.zeros(2, np.int64)
        return np.array(span, np.int64) - inputs.start + inputs.example["at"]

    def collate(self, items: Sequence[Item], pad: int) -> NumpyBatch:
        batch = super().collate(items, pad)
        if self.global_tokens != "question":
            return batch
        questions = tuple(item.example["asked"] for item in items)
        layout = PaddedLayout([len(item.arrays["ids"]) for item in items], global_tokens=questions)
        return replace(batch, placed={**batch.placed, "ids": layout})

    def metric(self, tokenizer: Encoder | None) -> AnswerMetric:
        return AnswerMetric(self.longest_answer, bool(self.unanswerable), self.margin)

    def preview(self, batch: Batch, row: int, tokenizer: TextDecoder | None) -> list[tuple[str, str]]:
        """Return the row's tokens, with the answer in brackets."""
        assert batch.labels is not None and tokenizer is not None
        tokens = tokenizer.tokens(batch.inputs["ids"][row].tolist()[: batch.inputs["layout"].lengths[row]])
        first, last = batch.labels[row].tolist()
        tokens[first] = f"【{tokens[first]}"
        tokens[last] = f"{tokens[last]}】"
        return [("question", batch.texts[row]["question"]), ("row", " ".join(tokens))]


def _answers(example: Example, source: Source) -> Sequence[str]:
    if "answers" not in example:
        raise ValueError(f"the {source.kind} source gives no questions; give one that does, such as questions")
    answers: Sequence[str] = example["answers"]
    return answers


def _tokens_of(answer: str, start: int, context: Pieces) -> tuple[int, int] | None:
    """The first and the last token that overlap an answer; None if there is none."""
    overlapping = np.flatnonzero((context.ends > start) & (context.starts < start + len(answer)))
    return (int(overlapping[0]), int(overlapping[-1])) if answer and len(overlapping) else None
