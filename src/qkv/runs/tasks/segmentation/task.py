"""The task `segment`: semantic segmentation, the class of every pixel of a picture, which is read in tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise, product
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ....core.batch import IGNORE, Batch
from ....core.metrics.base import Metric
from ....data import ascii_art
from ....data.media.exif import UPRIGHT, orientation, turned_mask
from ....data.media.images import Pixels, Size
from ....data.readers.segmentation_masks import Mask, read_mask
from ....data.source import SPLITS, Example, Skipped, Source
from ....data.task import Item, RandomContext, Task
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....nn.layers.embedding import Input
from ..pictures import SceneTask
from .metric import SegmentationMetric, Views

_MASKS_SAMPLE = 200  # training masks from which the values of masks are taken
VOID = 255  # a pixel without a class, in masks that hold class numbers
_UNKNOWN = -1


class Segment(SceneTask, kind="segment"):
    """Pictures with a mask of the same size: an array (H, W), or the path of a picture of one channel.

    classes: their names; by default as in the source, or numbers.
    values:  the value of each class in a mask. By default 0 and 255 if there are no others; else 0, 1, 2 …, where 255 is a
             pixel without a class, which isn't counted.
    rotate:  rotate training pictures by right angles at random, for pictures without an up and down.
    overlap: by how many pixels the tiles of a larger picture overlap in evaluation, where each pixel is predicted once, in
             the tile whose middle is nearest; by default a quarter of a tile.
    views:   the number of orientations in which evaluation reads each tile, to average the predictions
             (`tasks.segmentation.metric.seen_in`): 2 suit a model trained with `flip`, 8 one trained with `rotate`.

    A mask of the stored pixels of a picture that its EXIF data turn is turned with it. Pictures smaller than the model's
    input are padded with black, which isn't counted.
    """

    classes: tuple[str, ...] = ()
    values: tuple[int, ...] = ()
    rotate: bool = False
    overlap: int | None = Field(default=None, ge=0)
    views: Views = 1

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.classes and self.values and len(self.classes) != len(self.values):
            raise ValueError(f"there are {len(self.classes)} classes and {len(self.values)} values; give one for each")
        if len(set(self.values)) < len(self.values) or not all(0 <= value <= 255 for value in self.values):
            raise ValueError(f"values are different numbers from 0 to 255, not {list(self.values)}")
        return self

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        task = super().resolve(source, tokenizer, inputs)
        if self.views == 8 and task.size[0] != task.size[1]:
            height, width = task.size
            raise ValueError(
                f"task.views=8 turns tiles by right angles, and these are {height} × {width}; take at most 4"
            )
        classes = task.classes or getattr(source, "classes", ())
        values = task.values or _values(source, len(classes))
        return task.replace({"values": values, "classes": classes or tuple(map(str, range(len(values))))})

    @property
    def n_labels(self) -> int:
        return len(self.values)

    def labelled(self, example: Example, pixels: Pixels, randomness: RandomContext) -> Iterator[Item]:
        labels = self._labels(example, pixels)
        if randomness.training:
            return self._crops(example, pixels, labels, randomness.generator)
        return (replace(tile, labels=self._own(labels, tile)) for tile in self._tiles(example, pixels))

    def inputs_of(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Sequence[Item] | Skipped]:
        """Return the tiles of each picture, for prediction."""
        pictures = ((one, self.pixels(one)) for one in examples)
        return [p if isinstance(p, Skipped) else list(self._tiles(one, p)) for one, p in pictures]

    def check_labels(self, source: Source) -> list[str]:
        """Check the values of some masks of each split, before pictures are read."""
        for split in SPLITS:
            for example in islice(source.examples(split, shuffle=False), _MASKS_SAMPLE):
                self._indices(mask_of(example), example.get("where", "an example"))
        return []

    def _labels(self, example: Example, pixels: Pixels) -> NDArray[np.int64]:
        """(H, W): the class index of each pixel. Raises ValueError if the mask's size or values are wrong."""
        mask, where = self._upright(example, pixels), example.get("where", "an example")
        if mask.shape != pixels.shape[1:]:
            sizes = (f"{size[1]} × {size[0]}" for size in (mask.shape, pixels.shape[1:]))
            raise ValueError("{}: the mask is of {} pixels, the picture of {}".format(where, *sizes))
        return self._indices(mask, where)

    def _indices(self, mask: Mask, where: str) -> NDArray[np.int64]:
        """The class index of each pixel of a mask. Raises ValueError if it has another value."""
        table = np.full(256, _UNKNOWN)
        if VOID not in self.values:
            table[VOID] = IGNORE
        table[list(self.values)] = range(len(self.values))
        labels: NDArray[np.int64] = table[mask]
        if (labels == _UNKNOWN).any():
            wrong = int(mask[labels == _UNKNOWN][0])
            raise ValueError(
                f"{where}: the mask holds {wrong}, and the classes are {', '.join(map(str, self.values))}; give all values "
                "that stand for one as task.values=[0, 1, …]"
            )
        return labels

    def _upright(self, example: Example, pixels: Pixels) -> Mask:
        """The mask, turned with a picture that its EXIF data turn, unless the mask is of the picture as it is shown."""
        mask, file = mask_of(example), example["mask"]
        if isinstance(file, bytes | Path) and orientation(file) != UPRIGHT:  # `read_mask` has turned it
            example = {**example, "drawn_on": example.get("drawn_on") or "shown"}
        sizes = {pixels.shape[1:], pixels.shape[:0:-1]}
        turn = self.turn_of(example, pixels, mask.shape) if mask.shape in sizes else UPRIGHT
        return turned_mask(mask, turn)

    def _crops(
        self, example: Example, pixels: Pixels, labels: NDArray[np.int64], random: np.random.Generator
    ) -> Iterator[Item]:
        """Random crops for training, flipped and rotated with their labels."""
        pixels, labels = _padded(pixels, self.size, 0), _padded(labels, self.size, IGNORE)
        for _ in range(self.crops):
            top, left = (int(random.integers(n - side + 1)) for n, side in zip(labels.shape, self.size, strict=True))
            down, across = slice(top, top + self.size[0]), slice(left, left + self.size[1])
            both = pixels[:, down, across], labels[down, across]
            if self.flip and random.random() < 0.5:
                both = both[0][..., ::-1], both[1][..., ::-1]
            if self.rotate:
                turns = int(random.integers(4)) if self.size[0] == self.size[1] else 2 * int(random.integers(2))
                both = np.rot90(both[0], turns, (1, 2)), np.rot90(both[1], turns)
            numbers = self.relit(self.normalize(both[0]), random)
            yield self._item(numbers, np.ascontiguousarray(both[1]), example, Place(0, 0, labels.shape))

    def _tiles(self, example: Example, pixels: Pixels) -> Iterator[Item]:
        """Tiles of the model's size for evaluation, and which of its pixels each tile owns."""
        size = pixels.shape[1:]
        pixels = _padded(pixels, self.size, 0)
        axes = (tiles(n, side, self._overlap(side)) for n, side in zip(pixels.shape[1:], self.size, strict=True))
        for rows, columns in product(*axes):
            down, across = (slice(one.start, one.start + n) for one, n in zip((rows, columns), self.size, strict=True))
            item = self._item(
                self.normalize(pixels[:, down, across]), None, example, Place(rows.start, columns.start, size)
            )
            yield replace(item, example={**item.example, "own": (rows.own, columns.own)})

    def _own(self, labels: NDArray[np.int64], tile: Item) -> NDArray[np.int64]:
        """The labels of the pixels that a tile owns, −100 for all others."""
        place: Place = tile.example["place"]
        here = _padded(labels, self.size, IGNORE)[
            place.top : place.top + self.size[0], place.left : place.left + self.size[1]
        ]
        own = np.full(self.size, IGNORE)
        owned = tile.example["own"]
        own[owned] = here[owned]
        return own

    def _overlap(self, side: int) -> int:
        return min(side // 4 if self.overlap is None else self.overlap, side - 1)

    def _item(
        self, numbers: NDArray[np.float32], labels: NDArray[np.int64] | None, example: Example, place: Place
    ) -> Item:
        about = {"where": example.get("where", ""), "place": place}
        return Item({"ids": np.ascontiguousarray(numbers)}, labels, tokens=self.tokens, example=about)

    def preview(self, batch: Batch, row: int, tokenizer: TextDecoder | None) -> list[tuple[str, str]]:
        assert batch.labels is not None
        lines = [line for line in super().preview(batch, row, tokenizer) if line[0] != "label"]
        truth = batch.labels[row]
        return [
            *lines,
            ("label", ascii_art.shares(truth, self.classes)),
            *(("", line) for line in ascii_art.mask(truth)),
        ]

    def notes(self, example: Example) -> tuple[str, ...]:
        """Pictures are cut into tiles and keep their scale, so their size needs no note."""
        return Task.notes(self, example)

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return SegmentationMetric(self.classes, self.mean, self.std, self.views)


class Place(NamedTuple):
    """The position of a tile in its picture, and the picture's size."""

    top: int
    left: int
    whole: tuple[int, ...]


class PictureTile(NamedTuple):
    """A tile along one side of a picture, and the part that it owns, counted from its start."""

    start: int
    own: slice


def tiles(length: int, side: int, overlap: int) -> list[PictureTile]:
    """Cover a length evenly with tiles of one length that overlap by at least `overlap`; one tile owns each position."""
    count = 1 + max(0, -(-(length - side) // (side - overlap)))
    starts = [round(k * (length - side) / max(count - 1, 1)) for k in range(count)]
    edges = [0, *((a + side + b) // 2 for a, b in pairwise(starts)), length]
    return [PictureTile(start, slice(edges[k] - start, edges[k + 1] - start)) for k, start in enumerate(starts)]


def mask_of(example: Example) -> Mask:
    mask = example.get("mask")
    if mask is None:
        raise ValueError(f"{example.get('where', 'an example')} has no mask, which the task 'segment' learns from")
    return read_mask(mask) if isinstance(mask, Path | bytes) else mask


def _values(source: Source, classes: int) -> tuple[int, ...]:
    """The value of each class in the masks of some training examples."""
    values: set[int] = set()
    for example in islice(source.examples("train", shuffle=False), _MASKS_SAMPLE):
        values |= set(np.flatnonzero(np.bincount(mask_of(example).ravel(), minlength=256)).tolist())
    if values <= {0, VOID} and classes in (0, 2):
        return (0, VOID)
    return tuple(range(classes or max(values - {VOID}) + 1))


def _padded(values: NDArray[Any], size: Size, fill: int) -> NDArray[Any]:
    """Pad an array (…, H, W) on the right and at the bottom to at least this size."""
    more = [(0, max(0, want - have)) for want, have in zip(size, values.shape[-2:], strict=True)]
    if not any(after for _, after in more):
        return values
    return np.pad(values, [*[(0, 0)] * (values.ndim - 2), *more], constant_values=fill)
