"""The base of tasks on pictures: pictures in the size of the model, normalized."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ..data.media.image_files import content_of
from ..data.media.images import Color, Pixels, Size, decode, depth, normalized, read, resized, statistics
from ..data.source import Example, Skipped, Source
from ..data.task import Task
from ..layers.embedding import Input
from ..layers.patches import Patches
from ..tokenizers.protocol import Encoder

_LOOKED_AT = 16  # training pictures that the bits of gray ones are taken of
_SEEN = 200  # training pictures that mean and deviation are taken of


class PictureTask(Task):
    """A task on examples with an "image": pixels (C, H, W), the bytes of a file, or the path of one.

    image:     height and width of what the model reads; its own by default.
    channels:  3 for colors, 1 for gray; the model's.
    tokens:    of one picture in the model.
    bits:      of gray files of 16 bits, how many they use; those of the source, or of some training pictures by default.
    mean, std: of each channel, 0 … 1, by which pixels are normalized; those of some training pictures by default.
    """

    pool: ClassVar[int] = 128  # all of them are in memory at once, in numbers
    needs_tokenizer: ClassVar[bool] = False

    image: Size | None = None
    channels: int = 3
    tokens: int = 0
    bits: int | None = Field(default=None, ge=8, le=16)
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        if not isinstance(inputs, Patches):
            raise ValueError(f"the task {self.kind!r} is on pictures, and this model reads none; take one over patches")
        size = self.image or inputs.image
        grid = inputs.grid_of(size)
        if not grid.patches:
            raise ValueError(f"pictures of {size[0]} × {size[1]} pixels hold no patch of the model; raise task.image")
        made = self.replace({"image": size, "channels": inputs.channels, "tokens": grid.tokens})
        if made.bits is None:
            made = made.replace({"bits": getattr(source, "depth", None) or _depth(source)})
        if made.mean and made.std:
            return made
        examples = islice(source.examples("train", shuffle=True), _SEEN)
        found = [pixels for one in examples if not isinstance(pixels := made.pixels(one), Skipped)]
        if not found:
            raise ValueError(f"none of {_SEEN} training examples has a picture that can be read")
        mean, std = statistics(found)
        return made.replace({"mean": made.mean or mean, "std": made.std or std})

    def notes(self, example: Example) -> tuple[str, ...]:
        pixels = self.pixels(example)
        have = None if isinstance(pixels, Skipped) else pixels.shape[1:]
        if have is None or have == self.size:
            return super().notes(example)
        said = (
            f"the first picture has {have[0]} × {have[1]} pixels, and the model reads {self.size[0]} × {self.size[1]}"
        )
        return (*super().notes(example), f"{said}; pictures are brought to its size, which is model.image")

    @property
    def size(self) -> Size:
        """Height and width of what the model reads."""
        assert self.image is not None, "a task is settled before it makes items"
        return self.image

    def pixels(self, example: Example) -> Pixels | Skipped:
        """The picture of an example, with the model's channels; or why there is none."""
        found = example.get("image")
        if found is None:
            raise ValueError(f"{example.get('where', 'an example')} has no picture, which the task {self.kind!r} is on")
        if isinstance(found, np.ndarray):
            return channelled(found, self.channels)
        data = content_of(found) if isinstance(found, Path) else found
        color: Color = "gray" if self.channels == 1 else "rgb"
        where = str(example.get("where", "a picture"))
        made = data if isinstance(data, Skipped) else decode(data, color, bits=self.bits or 16, where=where)
        if isinstance(made, Skipped):
            return Skipped(f"whose picture is {made}", str(example.get("where", "")))
        return channelled(made, self.channels)

    def read(self, path: str | Path) -> Pixels:
        """The picture in a file, with the model's channels. Raises ValueError that names the file where there is none."""
        return read(path, "gray" if self.channels == 1 else "rgb", bits=self.bits or 16)

    def drawn(self, pixels: Pixels) -> Pixels:
        """A picture in the model's size, whatever its shape."""
        return resized(pixels, self.size)

    def numbers(self, pixels: Pixels) -> NDArray[np.float32]:
        return normalized(pixels, self.mean, self.std)


def _depth(source: Source) -> int | None:
    """How many bits the gray files of 16 use among some training examples, in their order."""
    given = (one.get("image") for one in islice(source.examples("train", shuffle=False), _LOOKED_AT))
    files = (content_of(one) if isinstance(one, Path) else one for one in given)
    return depth(data for data in files if isinstance(data, bytes))


def lit(numbers: NDArray[np.float32], light: float, random: np.random.Generator) -> NDArray[np.float32]:
    """Contrast and brightness changed by chance, each by this share at most."""
    scale, shift = random.uniform(-light, light, 2).astype(np.float32)
    return numbers * (1 + scale) + shift


def channelled(pixels: NDArray[Any], channels: int) -> Pixels:
    """A picture in colors or in gray, whichever it was. Raises ValueError for a model of as many channels as neither has."""
    if len(pixels) == channels:
        return pixels
    if len(pixels) == 1:
        return np.repeat(pixels, channels, 0)
    if (len(pixels), channels) != (3, 1):
        raise ValueError(
            f"a picture of {len(pixels)} channels is none for a model of {channels}; give model.channels={len(pixels)}"
        )
    gray: Pixels = np.rint(np.tensordot((0.299, 0.587, 0.114), pixels, 1)).astype(np.uint8)[None]
    return gray
