"""How a model of the Hub reads pictures: its `preprocessor_config.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.spec import brief
from ...data.media.images import Color, Filter, Pixels, Size, by_table, check_ratio, filter_of, read, resized
from ...nn.layers.patches import Patches
from ...nn.models.base import ModelSpec
from ...nn.models.dual_encoder import DualEncoder
from ...nn.models.transformer import Transformer
from .layout import PREPROCESSOR, PROCESSOR, read_json, write_json

FILE = PREPROCESSOR
_HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
_CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
USUAL: dict[str, dict[str, Any]] = {
    "ViT": {"size": {"height": 224, "width": 224}, "resample": 2, **_HALF},
    "DeiT": {"size": {"height": 256, "width": 256}, "resample": 3},
    "Siglip2": {"max_num_patches": 256, "patch_size": 16, "resample": 2, **_HALF},
    "Siglip": {"size": {"height": 224, "width": 224}, "resample": 3, **_HALF},
    "Gemma3": {"size": {"height": 224, "width": 224}, "resample": 2, **_HALF},
    "CLIP": {
        "size": {"shortest_edge": 224},
        "crop_size": {"height": 224, "width": 224},
        "do_center_crop": True,
        "resample": 3,
        **_CLIP,
    },
    "Qwen2VL": {"resample": 3, **_CLIP},
}
"""What a file leaves out, by the beginning of the name of transformers' class."""
NARROWEST = 200  # times the shorter side, which Qwen's models read
_SHORTEST = ("CLIP", "Siglip")  # classes for which one bare number is the shorter side


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
class Near:
    """A size near a picture's own (Qwen2-VL, Wang et al. 2024): sides that are multiples of `side`, with `least` to `most`
    pixels in all, whose ratio is nearly the picture's."""

    side: int
    least: int
    most: int

    def of(self, shape: tuple[int, ...]) -> Size:
        area = shape[0] * shape[1]
        height, width = (round(length / self.side) * self.side for length in shape)
        if height * width > self.most:
            scale = math.sqrt(area / self.most)
            height, width = (max(self.side, math.floor(n / scale / self.side) * self.side) for n in shape)
        elif height * width < self.least:
            scale = math.sqrt(self.least / area)
            height, width = (math.ceil(n * scale / self.side) * self.side for n in shape)
        return height, width

    @staticmethod
    def check(shape: tuple[int, ...], where: str) -> None:
        """Raise ValueError, naming the picture, if a side is more than `NARROWEST` times the other."""
        if max(shape) / min(shape) > NARROWEST:
            raise ValueError(
                f"{where} has {shape[0]:,} × {shape[1]:,} pixels, and this model reads pictures whose longer side is at "
                f"most {NARROWEST} times the shorter one; cut a piece from it"
            )


@dataclass(frozen=True)
class Filling:
    """The largest size with at most `most` patches of `side` × `side` pixels whose ratio is nearly a picture's (SigLIP 2,
    Tschannen et al. 2025): the sides times a factor up to 100, rounded up to whole patches."""

    side: int
    most: int

    def of(self, shape: tuple[int, ...]) -> Size:
        least, most = 1e-6, 100.0
        while most - least >= 1e-5:
            factor = (least + most) / 2
            height, width = self._patches(shape, factor)
            least, most = (factor, most) if height * width <= self.most else (least, factor)
        height, width = self._patches(shape, least)
        return height * self.side, width * self.side

    def _patches(self, shape: tuple[int, ...], factor: float) -> Size:
        height, width = (max(math.ceil(length * factor / self.side), 1) for length in shape)
        return height, width


@dataclass(frozen=True)
class Preprocessor:
    """A picture in the model's size, normalized: (x · factor − mean) / std, each number computed as transformers does.

    size: height and width that a picture is resized to; one number is the length of the shorter side; bounds keep the
          aspect ratio; None for no resizing.
    crop: size of the center crop after that, with black around a picture that is smaller; None for no crop.
    """

    color: Color
    size: Size | int | Within | Near | Filling | None
    crop: Size | None
    filter: Filter
    mean: tuple[float, ...]
    std: tuple[float, ...]
    factor: float = 1 / 255

    @classmethod
    def of(cls, folder: Path, spec: Transformer) -> Preprocessor:
        """The preprocessor of a model's directory. Raises ValueError if there is none, or one not supported."""
        seen = spec.output.embedding
        assert isinstance(seen, Patches)
        return cls.with_channels(folder, seen.channels)

    @classmethod
    def with_channels(cls, folder: Path, channels: int) -> Preprocessor:
        """As `of`, of a model that reads pictures of so many channels."""
        config, path = config_of(folder)
        try:
            return _read({key: value for key, value in config.items() if value is not None}, channels)
        except KeyError as error:
            raise ValueError(f"{path} lacks {error}") from None
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"{path}: {error}") from None

    @property
    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The mean and the deviation of brightness from 0 to 1 with which the numbers are the same."""
        whole = 255 * self.factor
        return tuple(one / whole for one in self.mean), tuple(one / whole for one in self.std)

    def read(self, path: str | Path) -> Pixels:
        """Read a picture from a file. Raises ValueError naming the file if it holds none."""
        return read(path, self.color)

    def numbers(self, pixels: Pixels, where: str = "the picture") -> NDArray[np.float32]:
        """The model's input (C, H, W) for a picture. Raises ValueError, naming it by `where`, if it is so long and narrow
        that it can't be enlarged."""
        return by_table(self._drawn(pixels, where), self.mean, self.std, self.factor)

    def _drawn(self, pixels: Pixels, where: str) -> Pixels:
        if isinstance(self.size, Near):
            self.size.check(pixels.shape[1:], where)
        size = _size_of(pixels.shape[1:], self.size)
        if isinstance(self.size, int):
            check_ratio(pixels.shape[1:], (self.size, self.size), where)
        full = resized(pixels, size, self.filter)
        return full if self.crop is None else _cropped(full, self.crop)


def is_there(folder: Path) -> bool:
    """Whether a directory says how pictures are read."""
    return any((folder / name).is_file() for name in (FILE, PROCESSOR))


def config_of(folder: Path) -> tuple[dict[str, Any], Path]:
    """The settings of a directory's processor of pictures and their file: `preprocessor_config.json`, or what
    `processor_config.json` says of pictures. Raises ValueError if there is neither."""
    path = folder / FILE
    if path.is_file():
        config = read_json(path)
    elif (folder / PROCESSOR).is_file() and isinstance(both := read_json(folder / PROCESSOR), dict):
        path, config = folder / PROCESSOR, both.get("image_processor")
    else:
        raise ValueError(
            f"{folder} has no {FILE}, which says how pictures are resized and normalized; put the model's own there"
        )
    if not isinstance(config, dict):
        raise ValueError(f"{path} has no settings of pictures")
    return config, path


def settings_of(task: object) -> dict[str, Any] | None:
    """The settings of a task that reads pictures in one size; None for another. Padding, which no file says, becomes
    stretching."""
    image, mean, std, fit = (getattr(task, name, None) for name in ("image", "mean", "std", "fit"))
    if not (image and mean and std):
        return None
    size = {"height": image[0], "width": image[1]}
    crops = fit == "crop" and image[0] == image[1]
    return {
        "do_resize": True,
        "size": {"shortest_edge": image[0]} if crops else size,
        "resample": 2,
        "do_center_crop": crops,
        **({"crop_size": size} if crops else {}),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(mean),
        "image_std": list(std),
    }


def keep(folder: Path, target: Path, settings: Mapping[str, Any]) -> None:
    """Write the preprocessor of a model's directory into that of a model trained from it, with the settings of its task."""
    try:
        config, _ = config_of(folder)
    except ValueError:
        return
    if str(config.get("image_processor_type", "")).startswith("Siglip2"):
        write_json(target / FILE, config)  # it reads any shape, also that of training
        return
    drawn = dict(settings)
    if any(config.get(key) for key in ("do_pad", "max_size")):
        drawn |= {"do_pad": False, "max_size": None}
    if not (drawn["do_center_crop"] or config.get("do_center_crop")):
        del drawn["do_center_crop"]
    write_json(target / FILE, {**config, **drawn})


def write(folder: Path, spec: ModelSpec, task: object) -> None:
    """Write how the task of a run reads pictures, for the class of transformers that does too, unless the directory says
    it."""
    settings = settings_of(task)
    if settings is None or is_there(folder):
        return
    fills = isinstance(spec, DualEncoder) and spec.fills
    kind = "Siglip" if fills else "CLIP" if isinstance(spec, DualEncoder) or settings["do_center_crop"] else "ViT"
    write_json(folder / FILE, {"image_processor_type": f"{kind}ImageProcessor", **settings})


def _read(config: Mapping[str, Any], channels: int) -> Preprocessor:
    """Raise KeyError for missing keys, ValueError for values that are not supported."""
    kind = str(config.get("image_processor_type", config.get("feature_extractor_type", "")))
    usual = next((values for name, values in USUAL.items() if kind.startswith(name)), {})
    config = {**usual, **config}
    filter = filter_of(config.get("resample", 2))
    factor = float(config.get("rescale_factor", 1 / 255)) if config.get("do_rescale", True) else 1.0
    if not (math.isfinite(factor) and factor > 0):
        raise ValueError(f"rescale_factor is {factor}, and it is a number above 0, such as 1/255")
    sizes = _sizes(config, kind)
    mean, std = (0.0,) * channels, (1.0,) * channels
    if config.get("do_normalize", True):
        mean, std = (_channels(config[key], channels) for key in ("image_mean", "image_std"))
    if {len(mean), len(std)} != {channels}:
        raise ValueError(
            f"image_mean and image_std have {len(mean)} and {len(std)} channels, and the model reads {channels}"
        )
    color: Color = "gray" if channels == 1 else "rgb"
    return Preprocessor(color, *sizes, filter, mean, std, factor)


def _channels(value: Any, channels: int) -> tuple[float, ...]:
    return (float(value),) * channels if isinstance(value, int | float) else tuple(map(float, value))


def _sizes(config: Mapping[str, Any], kind: str) -> tuple[Size | int | Within | Near | Filling | None, Size | None]:
    """The size that pictures are resized to, and the center crop."""
    resizes = config.get("do_resize", True)
    if kind.startswith("Qwen2VL"):
        return _near(config), None
    if kind.startswith("Siglip2"):
        return _filling(config), None
    if resizes and (within := _within(config, kind)) is not None:
        return within, None
    size = _size(config["size"], not kind.startswith(_SHORTEST)) if resizes else None
    crop = _size(config["crop_size"], square=True) if config.get("do_center_crop") else None
    if isinstance(crop, int) or (crop is None and not isinstance(size, tuple)):
        said = "it says one side alone" if resizes else "do_resize is false, so pictures have any size"
        raise ValueError(f"{said}, and a model reads a height and a width: give a crop_size of both")
    if any(side < 1 for one in (size, crop) if one is not None for side in (one if isinstance(one, tuple) else (one,))):
        raise ValueError(f"a size is {size} and the crop {crop}, and sides have at least one pixel")
    return size, crop


def _near(config: Mapping[str, Any]) -> Near:
    """The bounds of a picture's pixels, and the multiple of its sides, for Qwen's models. Older files have keys of their own
    for the bounds."""
    if not config.get("do_resize", True):
        raise ValueError("do_resize is false, and pictures are read in whole squares of patches")
    size = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280} if config.get("size") is None else config["size"]
    least, most = (
        config.get("min_pixels", size.get("shortest_edge")),
        config.get("max_pixels", size.get("longest_edge")),
    )
    side = config.get("patch_size", 14) * config.get("merge_size", 2)
    if any(type(number) is not int or number < 1 for number in (least, most, side)) or most < least:
        raise ValueError(
            f"pictures have {brief(least)} to {brief(most)} pixels and sides of a multiple of {brief(side)}; give whole "
            "numbers of at least 1, the smaller one as shortest_edge and the larger one as longest_edge"
        )
    return Near(side, least, most)


def _filling(config: Mapping[str, Any]) -> Filling:
    """The patches that a picture is resized to, for SigLIP 2."""
    if not config.get("do_resize", True):
        raise ValueError("do_resize is false, and pictures are read in whole patches")
    side, most = config["patch_size"], config["max_num_patches"]
    for key, number in (("patch_size", side), ("max_num_patches", most)):
        if type(number) is not int or number < 1:
            raise ValueError(f"{key} must be a whole number of at least 1, not {brief(number)}")
    return Filling(side, most)


def _within(config: Mapping[str, Any], kind: str) -> Within | None:
    """Bounds of both sides, if the configuration has them. Older files give them as two numbers."""
    size = config["size"]
    bounds = (
        (size["shortest_edge"], size["longest_edge"]) if isinstance(size, Mapping) and "longest_edge" in size else None
    )
    if bounds is None and not isinstance(size, Mapping) and "max_size" in config:
        bounds = int(size), int(config["max_size"])
    if bounds is not None and not kind.startswith(("Yolos", "Detr")) and kind:
        raise ValueError(f"size has a longest_edge, which is built for YolosImageProcessor, not for {brief(kind)}")
    return None if bounds is None else Within(*bounds)


def _size(sides: Any, square: bool) -> Size | int:
    """A height and a width, or the shorter side alone. One bare number, as in older files, is a `square` or the shorter
    side."""
    if isinstance(sides, Mapping):
        return int(sides["shortest_edge"]) if "shortest_edge" in sides else (int(sides["height"]), int(sides["width"]))
    return (int(sides), int(sides)) if square else int(sides)


def _size_of(shape: tuple[int, ...], wanted: Size | int | Within | Near | Filling | None) -> Size:
    """The size that a picture of this height and width is resized to."""
    height, width = shape
    if wanted is None:
        return height, width
    if isinstance(wanted, tuple):
        return wanted
    if isinstance(wanted, Within | Near | Filling):
        return wanted.of(shape)
    longer = int(wanted * max(shape) / min(shape))
    return (longer, wanted) if width <= height else (wanted, longer)


def _cropped(pixels: Pixels, size: Size) -> Pixels:
    """The middle of a picture. A picture that is smaller on a side stands in the middle of black, nearer to its end if the
    difference is odd."""
    have = pixels.shape[1:]
    if any(one < want for one, want in zip(have, size, strict=True)):
        around = [(max(want - one, 0) + 1) // 2 for one, want in zip(have, size, strict=True)]
        whole = np.zeros((len(pixels), *map(max, have, size)), np.uint8)
        whole[:, around[0] : around[0] + have[0], around[1] : around[1] + have[1]] = pixels
        top, left = ((one - want) // 2 + pad for one, want, pad in zip(have, size, around, strict=True))
        pixels = whole
    else:
        top, left = ((one - want) // 2 for one, want in zip(have, size, strict=True))
    return pixels[:, top : top + size[0], left : left + size[1]]
