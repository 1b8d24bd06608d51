"""The base of tasks on whole pictures: resizing, augmentation and stacking, a pool at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from ..data.media.augment import Augmentation, RandomResizedCrop
from ..data.media.images import Fit, fitted, normalized
from ..data.source import Example, Skipped
from ..data.task import RandomContext
from .pictures import PictureTask


class Stack(NamedTuple):
    """Pictures of the model's size, normalized, and which of the examples they are of; why others are skipped."""

    pictures: NDArray[np.float32]
    kept: list[int]
    skipped: dict[int, Skipped]


class AugmentedTask(PictureTask):
    """fit:     how a picture of another shape is brought to the model's size: the middle of it ("crop"), drawn to it
             ("stretch"), or all of it on black ("pad").
    augment: what changes training pictures by chance, one after the other, see `data.media.augment`.
    """

    fit: Fit = "crop"
    augment: tuple[Augmentation, ...] = ()

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if any(isinstance(one, RandomResizedCrop) for one in self.augment[1:]):
            raise ValueError("random-resized-crop cuts from the pictures as they come, so it is the first augmentation")
        return self

    def stacked(self, examples: Sequence[Example], randomness: RandomContext) -> Stack:
        """All pictures of a pool, changed by chance in training."""
        placed, kept, skipped = [], [], {}
        changes = self.augment if randomness.training else ()
        first = changes[0] if changes and isinstance(changes[0], RandomResizedCrop) else None
        for i, example in enumerate(examples):
            pixels = self.pixels(example)
            if isinstance(pixels, Skipped):
                skipped[i] = pixels
                continue
            size = self.size
            placed.append(
                fitted(pixels, size, self.fit) if first is None else first.cut(pixels, size, randomness.generator)
            )
            kept.append(i)
        stack = np.stack(placed) if placed else np.empty((0, self.channels, *self.size), np.uint8)
        for change in changes[0 if first is None else 1 :]:
            stack = change(stack, randomness.generator)
        return Stack(normalized(stack, self.mean, self.std), kept, skipped)
