"""The task `caption`: image captioning and visual question answering, and its prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field

from ....core.batch import IGNORE
from ....core.metrics.base import Metric
from ....data.batching.numpy_batch import Array
from ....data.source import Example, Skipped
from ....data.task import Item, RandomContext
from ....data.tokenizers.protocol import Encoder
from ..pictures import PictureTask
from ..prediction import Prediction, TrainedModel, parts_of
from ..prediction_batches import in_parts
from .metric import CaptionMetric, written


class Caption(PictureTask, kind="caption"):
    """Pictures with an "answer", and perhaps a "question". The encoder reads the picture, the decoder

        start + question + end + answer    or    start + answer

    and learns each token of the answer, and the end after it. A tokenizer without a beginning-of-sequence token starts with
    its end-of-sequence token.

    max_length: the most tokens of question, answer and special tokens; longer examples are skipped and counted.
    """

    fields = ("image", "answer")
    pool: ClassVar[int] = 256
    needs_tokenizer: ClassVar[bool] = True

    max_length: int = Field(default=128, ge=2)

    def texts(self, example: Example) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(example[name] for name in ("question", "answer") if example.get(name))

    def items(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Item | Skipped]:
        assert tokenizer is not None
        questions = tokenizer.encode_batch([example.get("question", "") for example in examples])
        answers = tokenizer.encode_batch([example["answer"] for example in examples])
        return [self._item(*parts, tokenizer) for parts in zip(examples, questions, answers, strict=True)]

    def _item(
        self, example: Example, question: Sequence[int], answer: Sequence[int], tokenizer: Encoder
    ) -> Item | Skipped:
        prompt = self.prompt(question, tokenizer)
        ids = [*prompt, *answer, tokenizer.eos_id]
        if len(ids) > self.max_length:
            return Skipped("over-long")
        if not len(answer):
            return Skipped("with an empty answer")
        pixels = self.pixels(example)
        if isinstance(pixels, Skipped):
            return pixels
        labels = np.array([IGNORE] * (len(prompt) - 1) + ids[len(prompt) :], np.int64)
        picture = self.normalize(self.resize(pixels))
        arrays: dict[str, Array] = {"ids": picture, "target": np.array(ids[:-1], np.int64)}
        about = {name: example.get(name, "") for name in ("where", "question", "answer")}
        return Item(arrays, labels, tokens=self.tokens, example=about)

    def prompt(self, question: Sequence[int], tokenizer: Encoder) -> list[int]:
        """Return what the decoder reads before the answer. Raises ValueError if the tokenizer has no end token."""
        end = tokenizer.eos_id
        if end is None:
            raise ValueError("captions need a tokenizer with an end-of-sequence token")
        start = end if tokenizer.bos_id is None else tokenizer.bos_id
        return [start, *question, end] if len(question) else [start]

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return CaptionMetric(tokenizer, self.max_length, self.mean, self.std)


@Caption.predicts
def predict(task: Caption, trained: TrainedModel, lines: Sequence[str], **options: Any) -> Iterator[Prediction]:
    """Generate a text for each line FILE or FILE<tab>QUESTION, as in evaluation.

    Raises ValueError if a file holds no picture, or a question leaves no room for an answer.
    """
    tokenizer = trained.words
    for part in in_parts(lines):
        split = [(path, " ".join(question).strip()) for path, *question in map(parts_of, part)]
        questions = tokenizer.encode_batch([question for _, question in split])
        prompts = [task.prompt(ids, tokenizer) for ids in questions]
        for (_, question), prompt in zip(split, prompts, strict=True):
            if len(prompt) >= task.max_length:
                raise ValueError(
                    f"the question {question[:60]!r} has {len(prompt)} tokens with special tokens, and question and "
                    f"answer have room for {task.max_length}; ask a shorter one"
                )
        pictures = np.stack([task.normalize(task.resize(task.read(path))) for path, _ in split])
        on_device = torch.from_numpy(pictures).to(trained.model.device)
        texts = written(trained.model, on_device, prompts, tokenizer, task.max_length)
        for line, (path, question), text in zip(part, split, texts, strict=True):
            yield Prediction(line, text, f"{path}: {text}", {"question": question, "output": text})
