"""Moving pictures: frames (T, C, H, W), read from animated files or made of digits that move, and cut into tubelets."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ...core.shuffle import mix
from ..media.images import MOST_PIXELS, Color, Fit, Pixels, Size, content, fitted, pages
from ..source import SPLITS, Example, Skipped, Source, Split, Table
from ..synthetic.toys import Made
from .images import Decode, Digits, ImageFiles

Frames = NDArray[np.uint8]
"""(T, C, H, W), 0 … 255."""

# Where each direction leads in a step: rows down, columns to the right.
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


def tubelets(frames: Frames, depth: int) -> Pixels:
    """(depth · C, T / depth · H, W): the frames of a tubelet as channels, tubelets of later frames below earlier ones.

    Patches of p × p pixels cut from this are tubelets of depth × p × p, each with a place of its own in time and space, so
    that patches and positions of pictures serve for videos (the tubelet embedding of ViViT, Arnab et al. 2021, §3.2).
    """
    t, channels, height, width = frames.shape
    grouped = frames.reshape(t // depth, depth * channels, height, width)
    return np.ascontiguousarray(grouped.swapaxes(0, 1).reshape(depth * channels, t // depth * height, width))


def evenly(frames: Frames, count: int) -> Frames:
    """So many frames, evenly from all; a frame stands for several where there are too few."""
    n = len(frames)
    return frames[[(2 * i + 1) * n // (2 * count) for i in range(count)]]


def resized(frames: Frames, size: Size, fit: Fit = "crop") -> Frames:
    """Each frame in another size, see `images.fitted`."""
    return frames if frames.shape[2:] == tuple(size) else np.stack([fitted(frame, size, fit) for frame in frames])


def decode_frames(
    data: bytes, color: Color = "rgb", most: int = MOST_PIXELS, bits: int = 16, where: str = "a video"
) -> Frames | Skipped:
    """All frames of an animated GIF, WebP or PNG, or the pages of a TIFF; or why there are none. `most` pixels in all."""
    found = pages(data, color, most, bits, where)
    if isinstance(found, Skipped):
        return found
    if len({frame.shape for frame in found}) > 1:
        return Skipped("of frames that differ in size")
    return np.stack(found)


def read(path: str | Path, color: Color = "rgb", most: int = MOST_PIXELS, bits: int = 16) -> Frames:
    """All frames in a file. Raises ValueError that names the file where there are none."""
    found = decode_frames(content(path), color, most, bits, str(path))
    if isinstance(found, Skipped):
        raise ValueError(f"{str(path)!r} can't be read as a video: it is {found}")
    return found


class Clips(ImageFiles, kind="clips"):
    """Animated GIF, WebP or PNG files, their folder naming the class, as `images` has it; each is a "video" of all its
    frames. Files that can't be read are skipped and counted."""

    @property
    def holds(self) -> str:
        return "video"

    @property
    def decode(self) -> Decode:
        return decode_frames


# -- made ones ---------------------------------------------------------------------------------------------------------


class MovingDigits(Source, kind="moving-digits"):
    """Videos of one of scikit-learn's handwritten digits that moves through a frame, and comes in again on the other side
    where it leaves it, as in Moving MNIST (Srivastava et al. 2015). What no single frame says is where it moves.

    frames, size: how many, and how many pixels high and wide.
    asks:       whether the label is the "direction", one of eight, or the "digit".
    noise:      how much, in shares of the brightness.
    train, validation, test: how many videos; training makes new ones in each epoch. The digits of a split are its own.
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
        """The labels that there are."""
        return tuple(DIRECTIONS) if self.asks == "direction" else tuple(map(str, range(10)))

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        digits, own = _digits(split), SPLITS.index(split)

        def make(i: int) -> Example:
            return self.made(digits, np.random.default_rng(mix(seed, epoch, i) if own == 0 else mix(own, i)), i)

        return Made({"train": self.train, "validation": self.validation, "test": self.test}[split], make)

    def made(self, digits: list[Example], random: np.random.Generator, number: int) -> Example:
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
