"""How Idefics 3 and SmolVLM read a picture: in squares of one size, tiles of the picture and then the whole of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .images import Color, Filter, Pixels, Size, by_table, filter_of, resized

LARGEST = 4096  # pixels on a side, whatever a configuration says


class Squares(NamedTuple):
    """The squares of a picture, (N, C, side, side): its tiles, row by row, and last the whole picture."""

    numbers: NDArray[np.float32]
    rows: int
    columns: int


@dataclass(frozen=True)
class SquarePictures:
    """A picture in squares of `side` pixels, as (x · factor − mean) / std. It is drawn to `longest` pixels on its longer
    side before. With `tiles`, a picture that is then larger than a square is also cut into squares."""

    longest: int
    side: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    tiles: bool = True
    color: Color = "rgb"
    filter: Filter = "lanczos"
    factor: float = 1 / 255

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
        for key in ("do_resize", "do_normalize"):
            if not config.get(key, True):
                raise ValueError(f"{key} is false, and what is built resizes and normalizes pictures")
        filter = filter_of(config.get("resample", 1))
        factor = float(config.get("rescale_factor", 1 / 255)) if config.get("do_rescale", True) else 1.0
        mean, std = tuple(config["image_mean"]), tuple(config["image_std"])
        if {len(mean), len(std)} != {channels}:
            raise ValueError(
                f"image_mean and image_std have {len(mean)} and {len(std)} channels, and the model reads {channels}"
            )
        longest, side = int(config["size"]["longest_edge"]), int(config["max_image_size"]["longest_edge"])
        if min(longest, side) < 1 or side > LARGEST or not (math.isfinite(factor) and factor > 0):
            raise ValueError(f"it has a longest_edge of {longest}, squares of {side} pixels and a scale of {factor}")
        tiles = bool(config.get("do_image_splitting", True))
        return cls(longest, side, mean, std, tiles, "gray" if channels == 1 else "rgb", filter, factor)

    def numbers(self, pixels: Pixels) -> NDArray[np.float32]:
        """The whole picture as (C, side, side)."""
        return self.squares(pixels).numbers[-1]

    def squares(self, pixels: Pixels) -> Squares:
        """The model's inputs for a picture."""
        drawn, side = resized(pixels, self._longest(pixels.shape[1:]), self.filter), (self.side, self.side)
        if not self.tiles:
            return self._made([resized(drawn, side, self.filter)], 0, 0)
        drawn = resized(drawn, self._whole_squares(drawn.shape[1:]), self.filter)
        rows, columns = (length // self.side for length in drawn.shape[1:])
        if rows * columns == 1:
            return self._made([drawn], 0, 0)
        corners = ((row * self.side, column * self.side) for row in range(rows) for column in range(columns))
        cut = [drawn[:, top : top + self.side, left : left + self.side] for top, left in corners]
        return self._made([*cut, resized(drawn, side, self.filter)], rows, columns)

    def _made(self, squares: list[Pixels], rows: int, columns: int) -> Squares:
        return Squares(np.stack([by_table(one, self.mean, self.std, self.factor) for one in squares]), rows, columns)

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

    def _whole_squares(self, shape: tuple[int, ...]) -> Size:
        """The size of whole squares: the longer side is rounded up, and the other one, by the ratio of both, too."""
        height, width = shape
        ratio = width / height
        if width >= height:
            width = self._up(width)
            return self._up(int(width / ratio)), width
        height = self._up(height)
        return height, self._up(int(height * ratio))

    def _up(self, length: int) -> int:
        return math.ceil(length / self.side) * self.side


def _even(number: int) -> int:
    return number + number % 2
