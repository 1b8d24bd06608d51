"""The task `caption`: image captioning and visual question answering, and its prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ....core.batch import IGNORE, Batch
from ....core.metrics.base import MeasuredModel, Metric
from ....core.spec import brief
from ....data.batching.numpy_batch import Array
from ....data.source import Example, Skipped
from ....data.task import Item, RandomContext
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ..pictures import PictureTask
from ..prediction import Prediction, TrainedModel, parts_of
from ..prediction_batches import in_parts
from .metric import CaptionMetric


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

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("sacrebleu",)

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
        try:
            prompt = self.prompt(question, tokenizer)
        except ValueError as error:
            raise ValueError(f"{example['where']}: {error}" if example.get("where") else str(error)) from None
        assert tokenizer.eos_id is not None
        ids = [*prompt, *answer, tokenizer.eos_id]
        if len(ids) > self.longest:
            return Skipped("over-long")
        if not len(answer):
            return Skipped("with an empty answer")
        pixels = self.pixels(example)
        if isinstance(pixels, Skipped):
            return pixels
        about = {name: example.get(name, "") for name in ("where", "question", "answer")}
        return self.item_of(self.normalize(self.resize(pixels)), ids, len(prompt), about)

    @property
    def longest(self) -> int:
        """The most tokens of what the decoder reads and writes."""
        return self.max_length

    def item_of(self, picture: Array, ids: Sequence[int], prompt: int, about: Example) -> Item:
        """The item of a picture and of the decoder's tokens, of which the first are the prompt."""
        labels = np.array([IGNORE] * (prompt - 1) + [*ids[prompt:]], np.int64)
        arrays: dict[str, Array] = {"ids": picture, "target": np.array(ids[:-1], np.int64)}
        return Item(arrays, labels, tokens=self.tokens, example=about)

    def written(
        self, model: MeasuredModel, pictures: Tensor, prompts: Sequence[list[int]], tokenizer: TextDecoder
    ) -> list[str]:
        """Generate a text for each picture (B, C, H, W) and prompt, greedily: at most `longest` tokens with the prompt,
        whatever the length of the other prompts."""
        width, end = max(map(len, prompts)), tokenizer.eos_id
        limits = [max(self.longest - len(prompt), 1) for prompt in prompts]
        ids = self.generated(model, pictures, prompts, eos_id=end, pad_id=end, max_new_tokens=max(limits))
        rows = (row[:n] for row, n in zip(ids[:, width:].tolist(), limits, strict=True))
        return [tokenizer.decode(row[: row.index(end)] if end in row else row) for row in rows]

    def generated(self, model: MeasuredModel, pictures: Tensor, prompts: Sequence[list[int]], **options: Any) -> Tensor:
        """The decoder's prompts, and what the model generates after them."""
        ids: Tensor = model.generate(pictures, target=prompts, **options)
        return ids

    def pictures_of(self, batch: Batch) -> Tensor:
        """The pictures of a batch (B, C, H, W)."""
        pictures: Tensor = batch.inputs["ids"]
        return pictures

    def prompts_of(self, batch: Batch) -> list[list[int]]:
        """The decoder's tokens of each row before its answer."""
        assert batch.labels is not None
        first = (batch.labels != IGNORE).to(torch.int8).argmax(1).tolist()
        return [row[: n + 1] for row, n in zip(batch.inputs["target"].tolist(), first, strict=True)]

    def prompt(self, question: Sequence[int], tokenizer: Encoder) -> list[int]:
        """Return what the decoder reads before the answer. Raises ValueError if the tokenizer has no end token."""
        end = tokenizer.eos_id
        if end is None:
            raise ValueError("captions need a tokenizer with an end-of-sequence token")
        start = end if tokenizer.bos_id is None else tokenizer.bos_id
        return [start, *question, end] if len(question) else [start]

    def check_room(self, question: str, prompt: Sequence[int]) -> None:
        """Raise ValueError if a question leaves no room for an answer."""
        if len(prompt) >= self.longest:
            room = self.longest - self.max_length
            raise ValueError(
                f"the question {question[:60]!r} has {len(prompt) - room} tokens with special tokens, and question and "
                f"answer have room for {self.max_length}; ask a shorter one"
            )

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return CaptionMetric(tokenizer, self)


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
            task.check_room(question, prompt)
        pictures = np.stack([task.normalize(task.resize(task.read(path), brief(path))) for path, _ in split])
        on_device = torch.from_numpy(pictures).to(trained.model.device)
        texts = task.written(trained.model, on_device, prompts, tokenizer)
        for line, (path, question), text in zip(part, split, texts, strict=True):
            yield Prediction(line, text, f"{path}: {text}", {"question": question, "output": text})
