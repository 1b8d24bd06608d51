"""The task `music`: language modeling of music, notes as words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from ....core.batch import IGNORE
from ....core.metrics.base import Metric
from ....data.media.note_names import Frame, frames_to_text, transposed
from ....data.source import Example, Skipped
from ....data.task import Item, RandomContext, Task
from ....data.tokenizers.protocol import Encoder
from .metric import MusicMetric


class Music(Task, kind="music"):
    """A piece is a sequence of frames, the notes that sound at one time, as words with a full stop: `C5 G4 E4 C3 .`

    Training transposes a piece by a random number of up to `transpose` semitones, up or down, and reads a random part of
    one that is longer than `longest` tokens. Evaluation reads a long piece in windows that overlap by half, and counts
    every note once.

    prompt, goes_on: the number of frames of a sample's prompt, and of the model's continuation.
    """

    predicts_without_input: ClassVar[bool] = True

    longest: int = Field(default=512, ge=4)
    transpose: int = Field(default=0, ge=0, le=12)
    prompt: int = Field(default=8, ge=1)
    goes_on: int = Field(default=24, ge=1)

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("mido",)

    def texts(self, example: Example) -> Iterator[str]:
        """The piece in every key, so no note is unknown."""
        for steps in range(-self.transpose, self.transpose + 1):
            yield frames_to_text(transposed(_frames(example), steps))

    def items(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Item | Skipped]:
        assert tokenizer is not None
        steps = [
            int(randomness.generator.integers(-self.transpose, self.transpose + 1)) if randomness.training else 0
            for _ in examples
        ]
        texts = [frames_to_text(transposed(_frames(one), by)) for one, by in zip(examples, steps, strict=True)]
        items: list[Item | Skipped] = []
        before, after = (() if i is None else (i,) for i in (tokenizer.bos_id, tokenizer.eos_id))
        for example, encoded in zip(examples, tokenizer.encode_batch(texts), strict=True):
            ids = np.array([*before, *encoded, *after], np.int64)
            if len(ids) < 2:
                items.append(Skipped("of one token"))
            elif randomness.training:
                start = int(randomness.generator.integers(max(1, len(ids) - self.longest)))
                items.append(_row(example, ids, start, start, self.longest))
            else:
                items += self._windows(example, ids)
        return items

    def _windows(self, example: Example, ids: np.ndarray) -> Iterator[Item]:
        """Rows that overlap by half, of which the tokens shared with the row before have no labels."""
        start = seen = 0
        while seen < len(ids) - 1:
            yield _row(example, ids, start, seen, self.longest)
            seen = start + self.longest
            start += self.longest // 2

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return MusicMetric(tokenizer, self.prompt, self.goes_on)


def _frames(example: Example) -> list[Frame]:
    if "frames" not in example:
        raise ValueError("music is made of frames, and these data have none; take scores or progressions")
    frames: list[Frame] = example["frames"]
    return frames


def _row(example: Example, ids: np.ndarray, start: int, seen: int, longest: int) -> Item:
    """A part of a piece with the next token as the label of each; tokens up to `seen` are not labels."""
    part = ids[start : start + longest + 1]
    labels = part[1:].copy()
    labels[: seen - start] = IGNORE
    return Item({"ids": part[:-1]}, labels, example={**example, "begins": start == 0})
