"""The task `caption`: a sentence about a picture, or the answer to a question about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from ...core.batch import IGNORE
from ...data.batching.numpy_batch import Array
from ...data.source import Example, Skipped
from ...data.task import Item, RandomContext
from ...metrics.base import Metric
from ...tokenizers.protocol import Encoder
from ..pictures import PictureTask
from .metric import CaptionMetric


class Caption(PictureTask, kind="caption"):
    """Pictures with an "answer", and perhaps a "question": the decoder reads

        start + question + end + answer    or    start + answer

    after what the encoder makes of the picture, and learns each token of the answer, and the end after it. A tokenizer
    without a beginning of a sequence starts by its end.

    max_length: tokens of question, answer and what stands around them at most; longer ones are skipped, and counted.
    """

    pool: ClassVar[int] = 256
    needs_tokenizer: ClassVar[bool] = True

    max_length: int = Field(default=128, ge=2)

    def texts(self, example: Example) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(example[name] for name in ("question", "answer") if example.get(name))

    def items(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Item | Skipped]:
        assert tokenizer is not None
        asked = tokenizer.encode_batch([example.get("question", "") for example in examples])
        answers = tokenizer.encode_batch([example["answer"] for example in examples])
        return [self._item(*parts, tokenizer) for parts in zip(examples, asked, answers, strict=True)]

    def _item(
        self, example: Example, asked: Sequence[int], answer: Sequence[int], tokenizer: Encoder
    ) -> Item | Skipped:
        prompt = self.prompt(asked, tokenizer)
        whole = [*prompt, *answer, tokenizer.eos_id]
        if len(whole) > self.max_length:
            return Skipped("over-long")
        if not len(answer):
            return Skipped("with an empty answer")
        pixels = self.pixels(example)
        if isinstance(pixels, Skipped):
            return pixels
        labels = np.array([IGNORE] * (len(prompt) - 1) + whole[len(prompt) :], np.int64)
        arrays: dict[str, Array] = {"ids": self.numbers(self.drawn(pixels)), "target": np.array(whole[:-1], np.int64)}
        about = {name: example.get(name, "") for name in ("where", "question", "answer")}
        return Item(arrays, labels, tokens=self.tokens, example=about)

    def prompt(self, asked: Sequence[int], tokenizer: Encoder) -> list[int]:
        """What the decoder reads before it answers. Raises ValueError where the tokenizer has no end."""
        end = tokenizer.eos_id
        if end is None:
            raise ValueError("captions need a tokenizer with an end-of-sequence token")
        start = end if tokenizer.bos_id is None else tokenizer.bos_id
        return [start, *asked, end] if len(asked) else [start]

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return CaptionMetric(tokenizer, self.max_length, self.mean, self.std)
