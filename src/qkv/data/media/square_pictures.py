"""How Idefics 3 and SmolVLM read a picture whole: drawn to a longest side, then to a square, whatever its shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .images import Color, Pixels, Size, normalized, resized

LARGEST = 4096  # pixels on a side, whatever a configuration says


@dataclass(frozen=True)
class SquarePictures:
    """A picture as (x / 255 − mean) / std in a square of `side` pixels, drawn to `longest` pixels on its longer side before.

    tiles: whether the processor would also cut a large picture into tiles, which is not done here.
    """

    longest: int
    side: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    tiles: bool = True
    color: Color = "rgb"

    @classmethod
    def of(cls, config: Mapping[str, Any], channels: int) -> Self | None:
        """The squares of a `preprocessor_config.json`; None if it reads pictures in another way.

        Raises ValueError for settings that are missing or not supported.
        """
        if not isinstance(config.get("max_image_size"), Mapping):
            return None
        try:
            return cls._read(config, channels)
        except KeyError as error:
            raise ValueError(f"it lacks {error}") from None
        except (TypeError, OverflowError) as error:
            raise ValueError(f"a size or a scale is no number: {error}") from None

    @classmethod
    def _read(cls, config: Mapping[str, Any], channels: int) -> Self:
        for key in ("do_resize", "do_rescale", "do_normalize"):
            if not config.get(key, True):
                raise ValueError(f"{key} is false, and what is built resizes, rescales and normalizes pictures")
        if not math.isclose(config.get("rescale_factor", 1 / 255), 1 / 255, rel_tol=1e-3):
            raise ValueError(f"rescale_factor is {config['rescale_factor']}, and what is built is 1/255")
        if config.get("resample", 1) != 1:
            raise ValueError(f"resample is {config['resample']}, and what is built is 1 (lanczos)")
        mean, std = tuple(config["image_mean"]), tuple(config["image_std"])
        if {len(mean), len(std)} != {channels}:
            raise ValueError(
                f"image_mean and image_std have {len(mean)} and {len(std)} channels, and the model reads {channels}"
            )
        longest, side = int(config["size"]["longest_edge"]), int(config["max_image_size"]["longest_edge"])
        tiles = bool(config.get("do_image_splitting", True))
        return cls(longest, side, mean, std, tiles, "gray" if channels == 1 else "rgb")

    def numbers(self, pixels: Pixels) -> NDArray[np.float32]:
        """The model's input (C, side, side) for a picture."""
        first = resized(pixels, self._longest(pixels.shape[1:]), "lanczos")
        return normalized(resized(first, (self.side, self.side), "lanczos"), self.mean, self.std)

    def _longest(self, shape: tuple[int, ...]) -> Size:
        """The size with `longest` on the longer side; the other is rounded down, then up to an even number."""
        height, width = shape
        ratio = width / height
        if width >= height:
            size = (_even(int(self.longest / ratio)), self.longest)
        else:
            size = (self.longest, _even(int(self.longest * ratio)))
        height, width = (max(side, 1) for side in size)
        if max(height, width) <= LARGEST:
            return height, width
        ratio = width / height
        return (max(int(LARGEST / ratio), 1), LARGEST) if width >= height else (LARGEST, max(int(LARGEST * ratio), 1))


def _even(number: int) -> int:
    return number + number % 2
