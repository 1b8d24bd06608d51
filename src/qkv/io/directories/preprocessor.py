"""How a model of the Hub reads pictures: its `preprocessor_config.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...data.media.images import Color, Filter, Pixels, Size, normalized, read, resized
from ...nn.layers.patches import Patches
from ...nn.models.transformer import Transformer
from .layout import PREPROCESSOR, read_json, write_json

FILE = PREPROCESSOR
_FILTERS: dict[int, Filter] = {0: "nearest", 2: "bilinear", 3: "bicubic"}  # by Pillow's numbers


@dataclass(frozen=True)
class Within:
    """A size that keeps a picture's aspect ratio: the shorter side has `shortest` pixels, or fewer if the longer side
    would exceed `longest`. Both are then rounded down to multiples of 16, the side of YOLOS's patches."""

    shortest: int
    longest: int

    def of(self, shape: tuple[int, ...]) -> Size:
        short, long = sorted(shape)
        exact = min(float(self.shortest), self.longest * float(short) / long)
        sides = {short: round(exact), long: int(exact * long / short)} if short < long else {short: round(exact)}
        height, width = (sides[side] - sides[side] % 16 for side in shape)
        return height, width


@dataclass(frozen=True)
class Preprocessor:
    """A picture in the model's size, normalized: (x / 255 − mean) / std.

    size: height and width that a picture is resized to; one number is the length of the shorter side.
    crop: size of the center crop after that; None for no crop.
    """

    color: Color
    size: Size | int | Within
    crop: Size | None
    filter: Filter
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, folder: Path, spec: Transformer) -> Preprocessor:
        """The preprocessor of a model's directory. Raises ValueError if there is none, or one not supported."""
        path = folder / FILE
        if not path.is_file():
            raise ValueError(
                f"{folder} has no {FILE}, which says how pictures are resized and normalized; put the model's own there"
            )
        seen = spec.output.embedding
        assert isinstance(seen, Patches)
        try:
            config = {key: value for key, value in read_json(path).items() if value is not None}
            return _read(config, seen.channels)
        except KeyError as error:
            raise ValueError(f"{path} lacks {error}") from None
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"{path}: {error}") from None

    def read(self, path: str | Path) -> Pixels:
        """Read a picture from a file. Raises ValueError naming the file if it holds none."""
        return read(path, self.color)

    def numbers(self, pixels: Pixels) -> NDArray[np.float32]:
        """The model's input (C, H, W) for a picture."""
        return normalized(self._drawn(pixels), self.mean, self.std)

    def _drawn(self, pixels: Pixels) -> Pixels:
        size = _size_of(pixels.shape[1:], self.size)
        full = resized(pixels, size, self.filter)
        if self.crop is None:
            return full
        top, left = ((have - want) // 2 for have, want in zip(size, self.crop, strict=True))
        return full[:, top : top + self.crop[0], left : left + self.crop[1]]


def keep(folder: Path, target: Path, size: Size, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    """Write the preprocessor of a model's directory into that of a model trained from it, which stretches pictures to a size
    and normalizes them by a mean and a deviation."""
    if not (folder / FILE).is_file() or not isinstance(config := read_json(folder / FILE), dict):
        return
    drawn = {"do_resize": True, "size": {"height": size[0], "width": size[1]}, "resample": 2}
    scaled = {"do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
    if any(config.get(key) for key in ("do_center_crop", "do_pad", "max_size")):
        drawn |= {"do_center_crop": False, "do_pad": False, "max_size": None}
    scaling = {**scaled, "image_mean": list(mean), "image_std": list(std)}
    write_json(target / FILE, {**config, **drawn, **scaling})


def _read(config: Mapping[str, Any], channels: int) -> Preprocessor:
    """Raise KeyError for missing keys, ValueError for values that are not supported."""
    for key in ("do_resize", "do_rescale"):
        if not config.get(key, True):
            raise ValueError(f"{key} is false, and what is built resizes pictures and reads 0 … 255 as 0 … 1")
    if not math.isclose(config.get("rescale_factor", 1 / 255), 1 / 255, rel_tol=1e-3):
        raise ValueError(f"rescale_factor is {config['rescale_factor']}, and what is built is 1/255")
    filter = config.get("resample", 2)
    if filter not in _FILTERS:
        known = ", ".join(f"{number} ({name})" for number, name in _FILTERS.items())
        raise ValueError(f"resample is {filter}, and what is built is {known}")
    mean, std = (0.0,) * channels, (1.0,) * channels
    if config.get("do_normalize", True):
        mean, std = tuple(config["image_mean"]), tuple(config["image_std"])
    if {len(mean), len(std)} != {channels}:
        raise ValueError(
            f"image_mean and image_std have {len(mean)} and {len(std)} channels, and the model reads {channels}"
        )
    return Preprocessor("gray" if channels == 1 else "rgb", *_sizes(config), _FILTERS[filter], mean, std)


def _sizes(config: Mapping[str, Any]) -> tuple[Size | int | Within, Size | None]:
    """The size that pictures are resized to, and the center crop."""
    if (within := _within(config)) is not None:
        return within, None
    size, crop = _size(config["size"]), _size(config["crop_size"]) if config.get("do_center_crop") else None
    if isinstance(crop, int) or (crop is None and isinstance(size, int)):
        raise ValueError("it says one side alone, and a model reads a height and a width: give a crop_size of both")
    drawn = (size, size) if isinstance(size, int) else size
    if crop is not None and (crop[0] > drawn[0] or crop[1] > drawn[1]):
        raise ValueError(f"crop_size is {crop}, more than the size {size} that pictures are drawn to")
    return size, crop


def _within(config: Mapping[str, Any]) -> Within | None:
    """Bounds of both sides, if the configuration has them. Older files give them as two numbers."""
    size = config["size"]
    if isinstance(size, Mapping):
        return Within(size["shortest_edge"], size["longest_edge"]) if "longest_edge" in size else None
    return Within(int(size), int(config["max_size"])) if "max_size" in config else None


def _size(sides: Any) -> Size | int:
    """A height and a width, or the shorter side alone. One bare number is a square, as in older files."""
    if isinstance(sides, Mapping):
        return int(sides["shortest_edge"]) if "shortest_edge" in sides else (int(sides["height"]), int(sides["width"]))
    return (int(sides), int(sides))


def _size_of(shape: tuple[int, ...], wanted: Size | int | Within) -> Size:
    """The size that a picture of this height and width is resized to."""
    if isinstance(wanted, tuple):
        return wanted
    if isinstance(wanted, Within):
        return wanted.of(shape)
    (height, width), shorter = shape, wanted
    scale = shorter / min(height, width)
    return (shorter, int(width * scale)) if height <= width else (int(height * scale), shorter)
