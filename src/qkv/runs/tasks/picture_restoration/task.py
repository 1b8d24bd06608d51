"""The tasks `restore` and `upscale`: clean pictures from noisy, masked or blurred ones, and large from small ones."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ....core.batch import Batch
from ....core.layout import Grid
from ....core.metrics.base import Metric
from ....core.metrics.baselines import Baseline
from ....core.optional_libraries import need
from ....data import ascii_art
from ....data.media.images import Pixels, resized
from ....data.source import Example, Skipped, Source
from ....data.task import Item, RandomContext
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....nn.layers.embedding import Input
from ....nn.layers.patches import Patches
from ..pictures import AugmentedTask
from .metric import PictureSimilarity, RestorationMetric


class RestorationTask(AugmentedTask):
    """Base class of tasks that predict a clean picture from a corrupted one of the same size, with the head `pixels`.

    The model predicts what is missing, clean − corrupted, in normalized units (residual learning, Zhang et al. 2017); the
    labels are that difference. A corrupted picture is one of 8 bits, as a file of it would be. In training it is corrupted
    anew in each epoch; in evaluation always in the same way, by a seed computed from its pixels.
    """

    corrupts: ClassVar[bool] = True
    made: ClassVar[str]  # an adjective for the result

    grid: Grid | None = None

    @property
    def patch(self) -> tuple[int, int]:
        """Height and width of the model's patches."""
        assert self.grid is not None, "resolve the task before it makes items"
        return self.size[0] // self.grid.rows, self.size[1] // self.grid.columns

    def corrupt(self, picture: Pixels, random: np.random.Generator) -> Pixels:
        """The picture (C, H, W) that the model reads, of the same size."""
        raise NotImplementedError(f"{type(self).__name__} does not define how a picture is corrupted")

    def filters(self, picture: Pixels, corrupted: Pixels) -> dict[str, tuple[Pixels, str]]:
        """The results of simple methods by name, each with what it does in words."""
        raise NotImplementedError(f"{type(self).__name__} does not define simple methods")

    def enlarged(self, pixels: Pixels) -> Pixels:
        """A new picture in the size of the result."""
        return pixels

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        task = super().resolve(source, tokenizer, inputs)
        assert isinstance(inputs, Patches)
        grid = inputs.grid_of(task.size)
        if (grid.rows * inputs.patch[0], grid.columns * inputs.patch[1]) != tuple(task.size):
            sizes = " and ".join(f"{high} × {wide}" for high, wide in (inputs.patch, task.size))
            raise ValueError(f"patches of {sizes} pixels leave out some; choose another model.image or model.patch")
        return task.replace({"grid": tuple(grid)})

    def inputs(self, example: Example, tokenizer: Encoder | None, randomness: RandomContext) -> Item | Skipped:
        """A picture as it is, of the model's size: for prediction."""
        return Item({"ids": self.normalize(example["image"])}, tokens=self.tokens)

    def items(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Item | Skipped]:
        stack = self.gathered(examples, randomness)
        if not stack.kept:
            return stack.with_skipped([])
        generator = randomness.generator if randomness.training else None
        corrupted = [self._corrupted(picture, generator) for picture in stack.pictures]
        seen, clean = self.normalize(np.stack(corrupted)), self.normalize(stack.pictures)
        abouts = ({} if randomness.training else {"where": examples[i].get("where", "")} for i in stack.kept)
        rows = zip(seen, clean, abouts, strict=True)
        return stack.with_skipped(Item({"ids": x}, y - x, {}, self.tokens, about) for x, y, about in rows)

    def _corrupted(self, picture: Pixels, random: np.random.Generator | None) -> Pixels:
        if random is None:
            random = np.random.default_rng(zlib.crc32(np.ascontiguousarray(picture).tobytes()))
        return self.corrupt(picture, random)

    def baselines(self, source: Source, examples: Iterable[Example]) -> list[Baseline]:
        """PSNR and SSIM of simple methods, and of the corrupted pictures themselves, on the same corrupted pictures."""
        sums: dict[str, PictureSimilarity] = {}
        about: dict[str, str] = {}
        rest = iter(examples)
        while pool := list(islice(rest, self.pool)):
            for picture in self.gathered(pool, RandomContext(np.random.default_rng(0), training=False)).pictures:
                for name, (made, what) in self.filters(picture, self._corrupted(picture, None)).items():
                    sums.setdefault(name, PictureSimilarity()).add(made, picture)
                    about[name] = what
        return [Baseline(name, one.means(), about[name]) for name, one in sums.items()]

    def counts(self, labels: NDArray[Any] | None, targets: dict[str, Any]) -> dict[str, int]:
        """Count the patches that the loss is on."""
        assert self.grid is not None
        return {"loss": 0 if labels is None else len(labels) * self.grid.patches}

    def metric(self, tokenizer: TextDecoder | None) -> Metric:
        return RestorationMetric(self.mean, self.std, self.patch, self.made)

    def preview(self, batch: Batch, row: int, tokenizer: TextDecoder | None) -> list[tuple[str, str]]:
        assert batch.labels is not None
        seen = batch.inputs["ids"][row]
        size = " × ".join(map(str, seen.shape))
        lines = []
        for name, pixels in (("corrupted", seen), ("clean", seen + batch.labels[row])):
            lines += [(name, f"{size} numbers"), *(("", line) for line in ascii_art.picture(pixels))]
        return lines


class Restore(RestorationTask, kind="restore"):
    """The model reads corrupted pictures and predicts the clean ones: denoising, deblurring and inpainting of pixels.

    blur:   σ of a Gaussian blur, in pixels.
    noise:  standard deviation of Gaussian noise, as a share of white (0.1 is 25.5 of 255 levels).
    masked: share of the pixels that are set to black, in all channels.

    They are applied in this order.
    """

    made = "restored"

    blur: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    noise: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    masked: float = Field(default=0.0, ge=0, lt=1)

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("scipy",) if self.blur else ()

    @model_validator(mode="after")
    def _corrupts_something(self) -> Self:
        if not self.blur and not self.noise and not self.masked:
            raise ValueError("nothing is corrupted; give task.noise, task.masked or task.blur")
        return self

    def corrupt(self, picture: Pixels, random: np.random.Generator) -> Pixels:
        numbers = picture.astype(np.float32)
        if self.blur:
            need("task.blur", "scipy")
            from scipy.ndimage import gaussian_filter

            numbers = gaussian_filter(numbers, (0, self.blur, self.blur))
        if self.noise:
            numbers = numbers + np.float32(255 * self.noise) * random.standard_normal(numbers.shape, np.float32)
        if self.masked:
            numbers = numbers * (random.random(numbers.shape[1:]) >= self.masked)
        return np.rint(numbers).clip(0, 255).astype(np.uint8)

    def filters(self, picture: Pixels, corrupted: Pixels) -> dict[str, tuple[Pixels, str]]:
        need("comparison with a median filter", "scipy")
        from scipy.ndimage import median_filter

        return {
            "the corrupted picture": (corrupted, "what the model reads"),
            "a median filter": (median_filter(corrupted, (1, 3, 3)), "the median of 3 × 3 pixels"),
        }


class Upscale(RestorationTask, kind="upscale"):
    """Super-resolution: the model predicts a large picture from a small one, which is first enlarged by bicubic
    interpolation (Dong et al. 2014).

    factor: how many times larger height and width become. Small pictures are made by bicubic interpolation with
            antialiasing.
    """

    made = "upscaled"

    factor: int = Field(default=2, ge=2)

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("PIL",)

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        task = super().resolve(source, tokenizer, inputs)
        if any(side % self.factor for side in task.size):
            height, width = task.size
            raise ValueError(f"task.factor={self.factor} does not divide pictures of {height} × {width} pixels")
        return task

    def enlarged(self, pixels: Pixels) -> Pixels:
        height, width = pixels.shape[1:]
        return resized(pixels, (height * self.factor, width * self.factor), "bicubic")

    def reduced(self, picture: Pixels) -> Pixels:
        """The small picture of a large one."""
        height, width = picture.shape[1:]
        return resized(picture, (height // self.factor, width // self.factor), "bicubic")

    def corrupt(self, picture: Pixels, random: np.random.Generator) -> Pixels:
        return self.enlarged(self.reduced(picture))

    def filters(self, picture: Pixels, corrupted: Pixels) -> dict[str, tuple[Pixels, str]]:
        nearest = self.reduced(picture).repeat(self.factor, 1).repeat(self.factor, 2)
        return {
            "bicubic interpolation": (corrupted, "what the model reads"),
            "nearest neighbor": (nearest, "each pixel of the small picture is repeated"),
        }
