"""The task `music`: each note is predicted from those before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from ...core.batch import IGNORE
from ...data.media.note_names import Frame, frames_to_text, transposed
from ...data.source import Example, Skipped
from ...data.task import Item, RandomContext, Task
from ...metrics.base import Metric
from ...tokenizers.protocol import Encoder
from .metric import MusicMetric


class Music(Task, kind="music"):
    """A piece is a row of words, its frames (what sounds at one time) with a full stop behind each: `C5 G4 E4 C3 .`

    In training, a piece is moved by up to `transpose` semitones, up or down, another number each time, and of one that is
    longer than `longest` tokens a part is read. In evaluation, a long piece is read in windows that overlap by half, and
    every note counts once.

    prompt, goes_on: frames of a sample that are given, and that the model is to go on for.
    """

    predicts_without_input: ClassVar[bool] = True

    longest: int = Field(default=512, ge=4)
    transpose: int = Field(default=0, ge=0, le=12)
    prompt: int = Field(default=8, ge=1)
    goes_on: int = Field(default=24, ge=1)

    def texts(self, example: Example) -> Iterator[str]:
        """In every key, so that no note is unknown."""
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
        played = [transposed(_frames(example), by) for example, by in zip(examples, steps, strict=True)]
        made: list[Item | Skipped] = []
        before, after = (() if i is None else (i,) for i in (tokenizer.bos_id, tokenizer.eos_id))
        for example, ids in zip(
            examples, tokenizer.encode_batch([frames_to_text(frames) for frames in played]), strict=True
        ):
            whole = np.array([*before, *ids, *after], np.int64)
            if len(whole) < 2:
                made.append(Skipped("of one token"))
            elif randomness.training:
                start = int(randomness.generator.integers(max(1, len(whole) - self.longest)))
                made.append(_row(example, whole, start, start, self.longest))
            else:
                made += self._windows(example, whole)
        return made

    def _windows(self, example: Example, whole: np.ndarray) -> Iterator[Item]:
        """Rows that overlap by half; what a row has in common with the one before is read and not counted again."""
        start = seen = 0
        while seen < len(whole) - 1:
            yield _row(example, whole, start, seen, self.longest)
            seen = start + self.longest
            start += self.longest // 2

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return MusicMetric(tokenizer, self.prompt, self.goes_on)


def _frames(example: Example) -> list[Frame]:
    if "frames" not in example:
        raise ValueError("music is made of frames, and these data have none; take scores or progressions")
    found: list[Frame] = example["frames"]
    return found


def _row(example: Example, whole: np.ndarray, start: int, seen: int, longest: int) -> Item:
    """A stretch of a piece, each token beside the one after it; what was predicted before `seen` is not counted."""
    part = whole[start : start + longest + 1]
    labels = part[1:].copy()
    labels[: seen - start] = IGNORE
    return Item({"ids": part[:-1]}, labels, example={**example, "begins": start == 0})
