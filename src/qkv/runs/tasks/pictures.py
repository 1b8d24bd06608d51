"""Base classes of tasks on pictures: size, channels and normalization, augmentation, and crops of labelled scenes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ...core.spec import counted
from ...data.media.augment import Augmentation, RandomResizedCrop
from ...data.media.exif import UPRIGHT, orientation, turns_annotations
from ...data.media.image_files import content_of
from ...data.media.images import (
    Color,
    Fit,
    Pixels,
    Size,
    decode,
    depth,
    fitted,
    narrow,
    normalized,
    read,
    resized,
    statistics,
    warn_of_stretch,
)
from ...data.source import Example, Skipped, Source
from ...data.task import Item, RandomContext, Task
from ...data.tokenizers.protocol import Encoder
from ...nn.layers.embedding import Input
from ...nn.layers.patches import Patches

_DEPTH_SAMPLE = 16  # training pictures from which the bit depth of gray ones is taken
_STATISTICS_SAMPLE = 200  # training pictures from which mean and deviation are taken


class PictureTask(Task):
    """A task on examples with an "image": pixels (C, H, W), the bytes of a file, or the path of one.

    image:     height and width of the model's input; by default the model's.
    channels:  3 for color, 1 for gray; the model's.
    tokens:    of one picture in the model.
    bits:      bit depth of gray files of 16 bits; by default the source's, or that of some training pictures.
    mean, std: of each channel, 0 … 1, for normalization; by default measured on some training pictures.
    """

    pool: ClassVar[int] = 128  # pictures are in memory as floats
    needs_tokenizer: ClassVar[bool] = False
    from_data: ClassVar[tuple[str, ...]] = ("mean", "std")

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
        task = self.replace({"image": size, "channels": inputs.channels, "tokens": grid.tokens})
        if task.bits is None:
            task = task.replace({"bits": getattr(source, "depth", None) or _depth(source)})
        if task.mean and task.std:
            return task
        looked_at = [task.pixels(one) for one in islice(source.examples("train", shuffle=True), _STATISTICS_SAMPLE)]
        pictures = [pixels for pixels in looked_at if not isinstance(pixels, Skipped)]
        if not pictures:
            why = [one for one in looked_at if isinstance(one, Skipped)]
            first = f": the first is one {why[0]}{f' ({why[0].where})' if why[0].where else ''}" if why else ""
            raise ValueError(
                f"none of the {counted(len(why), 'training example')} looked at has a picture that can be read{first}"
            )
        mean, std = statistics(pictures)
        return task.replace({"mean": task.mean or mean, "std": task.std or std})

    def notes(self, example: Example) -> tuple[str, ...]:
        pixels, notes = self.pixels(example), [*super().notes(example)]
        if isinstance(pixels, Skipped):
            return tuple(notes)
        height, width = pixels.shape[1:]
        if (height, width) != self.size:
            notes.append(
                f"the first picture has {height} × {width} pixels, and the model reads {self.size[0]} × {self.size[1]}; "
                "pictures are resized to that (model.image)"
            )
        if self.channels == 1 and self._in_color(example):
            notes.append(
                "the first picture is in color, and the model has one channel; pictures are converted to gray "
                "(model.channels=3 reads the colors)"
            )
        return tuple(notes)

    def _in_color(self, example: Example) -> bool:
        pixels = self.replace({"channels": 3}).pixels(example)
        return not isinstance(pixels, Skipped) and bool((pixels != pixels[:1]).any())

    @property
    def size(self) -> Size:
        """Height and width of the model's input."""
        assert self.image is not None, "resolve the task before it makes items"
        return self.image

    def pixels(self, example: Example) -> Pixels | Skipped:
        """Return the picture of an example with the model's channels, or why it is skipped."""
        image = example.get("image")
        if image is None:
            raise ValueError(f"{example.get('where', 'an example')} has no picture, which the task {self.kind!r} is on")
        if isinstance(image, np.ndarray):
            return with_channels(image, self.channels)
        data = content_of(image) if isinstance(image, Path) else image
        color: Color = "gray" if self.channels == 1 else "rgb"
        where = str(example.get("where", "a picture"))
        pixels = data if isinstance(data, Skipped) else decode(data, color, bits=self.bits or 16, where=where)
        if isinstance(pixels, Skipped):
            return Skipped(f"whose picture is {pixels}", str(example.get("where", "")))
        return with_channels(pixels, self.channels)

    def read(self, path: str | Path) -> Pixels:
        """Read a picture file with the model's channels. Raises ValueError, naming the file, if it holds no picture."""
        return read(path, "gray" if self.channels == 1 else "rgb", bits=self.bits or 16)

    def resize(self, pixels: Pixels, where: str = "") -> Pixels:
        """Stretch a picture to the model's size, whatever its shape. Warns of a very long one, if `where` names it."""
        if where:
            warn_of_stretch(pixels.shape[1:], self.size, where)
        return resized(pixels, self.size)

    def normalize(self, pixels: Pixels) -> NDArray[np.float32]:
        """Turn pixels into the numbers that the model reads."""
        return normalized(pixels, self.mean, self.std)


class SceneTask(PictureTask):
    """Base class of tasks whose labels are places in the picture, so augmentation moves both.

    crops: how many crops of a training picture an epoch shows.
    flip:  mirror training pictures left to right at random.
    light: the most by which contrast and brightness of training pictures change, as a share.
    """

    crops: int = Field(default=1, ge=1)
    flip: bool = True
    light: float = Field(default=0.0, ge=0, lt=1)

    def labelled(self, example: Example, pixels: Pixels, randomness: RandomContext) -> Iterable[Item | Skipped]:
        """The items of a picture with their labels, augmented in training."""
        raise NotImplementedError(f"{type(self).__name__} does not define the labelled items of a picture")

    def item(self, example: Example, tokenizer: Encoder | None, randomness: RandomContext) -> Item | Skipped:
        return self.items([example], tokenizer, randomness)[0]

    def items(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Item | Skipped]:
        items: list[Item | Skipped] = []
        for example in examples:
            pixels = self.pixels(example)
            items += [pixels] if isinstance(pixels, Skipped) else self.labelled(example, pixels, randomness)
        return items

    @staticmethod
    def turn_of(example: Example, pixels: Pixels, annotated: Size | None) -> int:
        """The EXIF orientation by which the annotations of a picture turn with it, see `exif.turns_annotations`.

        Raises ValueError if they are of a picture of another size.
        """
        file = example.get("image")
        number = example.get("orientation") or (orientation(file) if isinstance(file, bytes | Path) else UPRIGHT)
        where, drawn_on = str(example.get("where", "an example")), example.get("drawn_on")
        size = (pixels.shape[1], pixels.shape[2])
        return number if turns_annotations(number, size, annotated, drawn_on, where) else UPRIGHT

    def relit(self, numbers: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
        """Change contrast and brightness at random, each by the share `light` at most."""
        if not self.light:
            return numbers
        scale, shift = random.uniform(-self.light, self.light, 2).astype(np.float32)
        return numbers * (1 + scale) + shift


class PictureStack(NamedTuple):
    """Pictures of the model's size, the indices of their examples, and the reasons why others are skipped."""

    pictures: NDArray[Any]
    kept: list[int]
    skipped: dict[int, Skipped]

    def with_skipped(self, items: Iterable[Item | Skipped]) -> list[Item | Skipped]:
        """Items of the pictures, with the skipped examples in their places."""
        merged = {**self.skipped, **dict(zip(self.kept, items, strict=True))}
        return [merged[i] for i in range(len(merged))]


class AugmentedTask(PictureTask):
    """Base class of tasks on whole pictures, which are resized and augmented a pool at a time.

    fit:     how a picture of another shape is brought to the model's size: "crop" its middle, "stretch" it, or "pad" it
             with black.
    augment: augmentations of training pictures, applied one after the other, see `data.media.augment`.
    """

    fit: Fit = "crop"
    augment: tuple[Augmentation, ...] = ()

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if any(isinstance(one, RandomResizedCrop) for one in self.augment[1:]):
            raise ValueError("random-resized-crop cuts from the pictures as they come, so it is the first augmentation")
        return self

    def stacked(self, examples: Sequence[Example], randomness: RandomContext) -> PictureStack:
        """Read, resize and normalize the pictures of a pool, augmented in training."""
        stack = self.gathered(examples, randomness)
        return stack._replace(pictures=normalized(stack.pictures, self.mean, self.std))

    def gathered(self, examples: Sequence[Example], randomness: RandomContext) -> PictureStack:
        """`stacked` before normalization: pixels of 0 … 255."""
        pictures, kept, skipped = [], [], {}
        changes = self.augment if randomness.training else ()
        crop = changes[0] if changes and isinstance(changes[0], RandomResizedCrop) else None
        for i, example in enumerate(examples):
            pixels = self.pixels(example)
            if not isinstance(pixels, Skipped) and self.fit == "crop" and narrow(pixels.shape[1:], self.size):
                pixels = Skipped("whose picture is too long and narrow", str(examples[i].get("where", "")))
            if isinstance(pixels, Skipped):
                skipped[i] = pixels
                continue
            cut = (
                fitted(pixels, self.size, self.fit)
                if crop is None
                else crop.cut(pixels, self.size, randomness.generator)
            )
            pictures.append(cut)
            kept.append(i)
        stack = np.stack(pictures) if pictures else np.empty((0, self.channels, *self.size), np.uint8)
        for change in changes[0 if crop is None else 1 :]:
            stack = change(stack, randomness.generator)
        return PictureStack(stack, kept, skipped)


def with_channels(pixels: NDArray[Any], channels: int) -> Pixels:
    """Convert a picture to color or gray. Raises ValueError if the model has another number of channels than these."""
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


def _depth(source: Source) -> int | None:
    """The bit depth of the gray files of 16 bits among the first training examples."""
    images = (one.get("image") for one in islice(source.examples("train", shuffle=False), _DEPTH_SAMPLE))
    files = (content_of(one) if isinstance(one, Path) else one for one in images)
    return depth(data for data in files if isinstance(data, bytes))
