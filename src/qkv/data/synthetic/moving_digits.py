"""Generated videos like Moving MNIST: handwritten digits that move through a frame."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
from pydantic import Field

from ..readers.digits import Digits
from ..shuffle import mix
from ..source import SPLITS, Example, Source, Split, Table
from ..tables import ComputedTable

# The step of each direction: rows down, columns to the right.
DIRECTIONS = {
    "left": (0, -1),
    "right": (0, 1),
    "up": (-1, 0),
    "down": (1, 0),
    "up left": (-1, -1),
    "up right": (-1, 1),
    "down left": (1, -1),
    "down right": (1, 1),
}
_DIGIT = 8  # pixels on each side


class MovingDigits(Source, kind="moving-digits"):
    """Videos of one of the handwritten digits of `digits`, which moves through the frame and wraps around at its edges, as
    in Moving MNIST (Srivastava et al. 2015). No single frame shows the direction.

    frames, size: number of frames, and their height and width in pixels.
    asks:       whether the label is the "direction", one of eight, or the "digit".
    noise:      standard deviation of the noise, as a share of full brightness.
    train, validation, test: number of videos; training generates new ones in each epoch. Splits share no digit image.
    """

    frames: int = Field(default=8, ge=2)
    size: int = Field(default=16, ge=_DIGIT)
    asks: Literal["direction", "digit"] = "direction"
    noise: float = Field(default=0.1, ge=0, le=1)
    train: int = Field(default=4000, ge=1)
    validation: int = Field(default=200, ge=1)
    test: int = Field(default=400, ge=1)

    @property
    def classes(self) -> tuple[str, ...]:
        """The possible labels."""
        return tuple(DIRECTIONS) if self.asks == "direction" else tuple(map(str, range(10)))

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        digits, number = _digits(split), SPLITS.index(split)

        def video(i: int) -> Example:
            return self.generate(digits, np.random.default_rng(mix(number, i) if number else mix(seed, epoch, i)), i)

        return ComputedTable(getattr(self, split), video)

    def generate(self, digits: list[Example], random: np.random.Generator, number: int) -> Example:
        """One video of one of these digits."""
        digit = digits[int(random.integers(len(digits)))]
        direction = tuple(DIRECTIONS)[int(random.integers(len(DIRECTIONS)))]
        down, right = DIRECTIONS[direction]
        still = np.zeros((self.size, self.size), np.float32)
        still[:_DIGIT, :_DIGIT] = digit["image"][0]
        top, left = random.integers(0, self.size, 2).tolist()
        moved = [np.roll(still, (top + t * down, left + t * right), (0, 1)) for t in range(self.frames)]
        noisy = np.stack(moved) + 255 * self.noise * random.standard_normal((self.frames, *still.shape), np.float32)
        frames = np.rint(noisy).clip(0, 255).astype(np.uint8)[:, None]
        label = direction if self.asks == "direction" else digit["label"]
        return {"video": frames, "label": label, "where": f"moving digits, video {number:,}"}


@lru_cache(maxsize=3)
def _digits(split: Split) -> list[Example]:
    return list(Digits().examples(split, shuffle=False))
