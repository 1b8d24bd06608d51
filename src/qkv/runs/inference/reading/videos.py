"""Videos for models in the Hub's format: which pictures are read, their sizes and values, and their placeholders.

For the same decoded pictures, the results equal the results of transformers' processors bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ....core.spec import brief, counted
from ....data.media import given
from ....data.media.images import Pixels, Size
from ....data.media.video import Sampled
from ....io.directories.layout import PREPROCESSOR, PROCESSOR, read_json
from ....io.directories.preprocessor import Near
from ....nn.models.joint import TimedVideo
from ...tasks.media import MediaInPlace

FILE = "video_preprocessor_config.json"
_FILTERS = {0: "nearest-exact", 2: "bilinear", 3: "bicubic"}  # by Pillow's numbers
_CHOICE = {"fps": (int, float), "num_frames": (int,)}  # null says that the other counts
_MEAN, _STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
_SHAPE: Mapping[str, Any] = {"resample": 3, "rescale_factor": 1 / 255, "temporal_patch_size": 2, "merge_size": 2}
_BOUNDS: Mapping[str, Any] = {"min_frames": 4, "max_frames": 768, "fps": None, "num_frames": None}


@dataclass(frozen=True)
class VideoProcessor:
    """The processor of videos of Qwen2-VL and Qwen2.5-VL, by the settings of a directory.

    With `do_sample_frames`, `fps` pictures of each second are read, or `num_frames` in all; otherwise all. Each has from
    `shortest_edge` to `longest_edge` pixels.
    """

    config: Mapping[str, Any]
    where: object

    usual: ClassVar[Mapping[str, Any]] = {
        **_SHAPE,
        **_BOUNDS,
        "patch_size": 14,
        "size": {"shortest_edge": 128 * 28 * 28, "longest_edge": 28 * 28 * 768},
        "image_mean": _MEAN,
        "image_std": _STD,
        "do_sample_frames": False,
        "max_video_tokens": 128000,
    }
    times: ClassVar[bool] = False  # whether the text has the time of each group of pictures

    @classmethod
    def of(cls, folder: Path) -> VideoProcessor:
        """Raises ValueError naming the file and the setting that is not valid."""
        said, where = _config_of(folder)
        config = {**cls.usual, **{key: value for key, value in said.items() if value is not None or key in _CHOICE}}
        size = dict(config["size"]) if isinstance(config["size"], Mapping) else {}
        for key, side in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
            size |= {side: config[key]} if config.get(key) is not None else {}
        made = cls({**config, "size": size}, where)
        made._check()
        return made

    def _check(self) -> None:
        config, size = self.config, self.config["size"]
        whole = {
            key: config[key] for key in ("patch_size", "merge_size", "temporal_patch_size", "min_frames", "max_frames")
        }
        whole |= {side: size.get(side) for side in ("shortest_edge", "longest_edge")}
        for key, value in whole.items():
            if type(value) is not int or value < 1:
                raise ValueError(f"{self.where}: {key} must be a whole number of at least 1, not {brief(value)}")
        if size["longest_edge"] < size["shortest_edge"]:
            raise ValueError(
                f"{self.where}: videos have {size['shortest_edge']} to {size['longest_edge']} pixels; give the "
                "smaller number as shortest_edge"
            )
        if not (config.get("do_resize", True) and config.get("do_rescale", True) and config.get("do_normalize", True)):
            raise ValueError(
                f"{self.where}: do_resize, do_rescale and do_normalize are true for the videos of this model"
            )
        if config["resample"] not in _FILTERS:
            raise ValueError(
                f"{self.where}: resample is {brief(config['resample'])}, and videos are resized by 0 (nearest), 2 "
                "(bilinear) or 3 (bicubic)"
            )
        for key, kinds in _CHOICE.items():
            value = config[key]
            if value is not None and not (type(value) in kinds and 0 < value < math.inf):
                raise ValueError(
                    f"{self.where}: {key} is {'a whole number' if kinds == (int,) else 'a number'} above 0, not "
                    f"{brief(value)}"
                )
        if config["do_sample_frames"] and (config["fps"] is None) == (config["num_frames"] is None):
            raise ValueError(
                f"{self.where}: do_sample_frames needs one of fps and num_frames; give one, and null for the other"
            )

    # -- which pictures ----------------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """How many pictures a patch spans."""
        depth: int = self.config["temporal_patch_size"]
        return depth

    @property
    def side(self) -> int:
        """The sides of pictures are multiples of this number of pixels."""
        side: int = self.config["patch_size"] * self.config["merge_size"]
        return side

    def choose(self, total: int, rate: float) -> Sequence[int]:
        """The indices of the pictures that are read, of `total`, `rate` in a second."""
        if not self.config["do_sample_frames"]:
            return range(total)
        depth, count = self.depth, self.config["num_frames"]
        if count is not None:
            count = round(count / depth) * depth
        else:
            most = math.floor(min(self.config["max_frames"], total) / depth) * depth
            count = min(max(total / rate * self.config["fps"], self.config["min_frames"]), most, total)
            count = math.floor(count / depth) * depth
        self._check_length(count, total)
        indices: list[int] = torch.arange(0, total, total / count).int().tolist()
        return indices

    def _check_length(self, count: int, total: int) -> None:
        if not 0 < count <= total:
            raise ValueError(
                f"a video of {counted(total, 'picture')} is too short: {self.where} reads {max(count, self.depth)} of them, "
                f"{self.depth} at a time"
            )

    # -- numbers -----------------------------------------------------------------------------------------------------

    def size_of(self, shape: Size, count: int) -> Size:
        """The size that pictures of a video of `count` pictures are resized to."""
        least, most = self.config["size"]["shortest_edge"], self.config["size"]["longest_edge"]
        if self.config.get("cap_pixels_per_frame"):
            budget = int(self.config["max_video_tokens"] * self.side**2 * 0.9)
            most = max(min(most, budget * self.depth // count), int(least * 1.05))
        Near.check(shape, "the video")
        return Near(self.side, least, most).of(shape)

    def keep(self, pixels: Pixels, count: int) -> Tensor:
        """The pixels of a picture of a video of `count` in its size."""
        size = self.size_of((pixels.shape[1], pixels.shape[2]), count)
        picture = torch.from_numpy(np.ascontiguousarray(pixels))[None]
        if picture.shape[2:] == size:
            return picture[0]
        mode = _FILTERS[self.config["resample"]]
        return F.interpolate(picture, size=size, mode=mode, antialias=mode != "nearest-exact")[0]

    def numbers(self, pictures: Sequence[Tensor]) -> Tensor:
        """The model's input (F, C, H, W); the last picture is repeated until patches are full."""
        factor = 1.0 / self.config["rescale_factor"]
        mean, std = (torch.tensor(self.config[key]) * factor for key in ("image_mean", "image_std"))
        pixels = torch.stack([*pictures, *[pictures[-1]] * (-len(pictures) % self.depth)])
        return pixels.float().sub_(mean[:, None, None]).div_(std[:, None, None])

    def read(self, file: object) -> Sampled:
        """The pictures of a file that are read, in their size. Raises ValueError that names the file."""
        found = given.video(file, self.choose, self.keep)
        if len({one.shape for one in found.pictures}) != 1:
            raise ValueError(f"{given.name_of(file, 'video')} can't be read as a video: its pictures differ in size")
        return found


@dataclass(frozen=True)
class TimedProcessor(VideoProcessor):
    """Qwen3-VL's processor of videos. It chooses pictures from the first to the last. Together they have between
    `shortest_edge` and `longest_edge` pixels. The text contains the time of each group."""

    usual: ClassVar[Mapping[str, Any]] = {
        **_SHAPE,
        **_BOUNDS,
        "patch_size": 16,
        "size": {"shortest_edge": 128 * 32 * 32, "longest_edge": 32 * 32 * 768},
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "do_sample_frames": True,
        "fps": 2,
        "max_video_tokens": 768,
    }
    times: ClassVar[bool] = True

    def choose(self, total: int, rate: float) -> Sequence[int]:
        if not self.config["do_sample_frames"]:
            return range(total)
        count = self.config["num_frames"]
        if count is None:
            count = max(int(total / rate * self.config["fps"]), self.config["min_frames"])
            count = min(count, self.config["max_frames"], total)
        self._check_length(count, total)
        indices: list[int] = np.linspace(0, total - 1, count).round().astype(int).tolist()
        return indices

    def size_of(self, shape: Size, count: int) -> Size:
        least, most, side = self.config["size"]["shortest_edge"], self.config["size"]["longest_edge"], self.side
        if count < self.depth:
            raise ValueError(
                f"a video of {counted(count, 'picture')} is too short for this model, which reads {self.depth} at a "
                "time; give it as a picture"
            )
        if self.config.get("cap_pixels_per_frame"):
            cap = self.config["max_video_tokens"] * side**2
            most = max(min(cap, most // count), int(least * 1.05)) * count
        if min(shape) < side:
            scale = max(side / shape[0], side / shape[1])
            shape = (int(shape[0] * scale), int(shape[1] * scale))
        Near.check(shape, "the video")
        height, width = (round(length / side) * side for length in shape)
        total = round(count / self.depth) * self.depth * height * width
        scale = math.sqrt(count * shape[0] * shape[1] / most)
        if total > most:
            height, width = (max(side, math.floor(n / scale / side) * side) for n in shape)
        elif total < least:
            scale = math.sqrt(least / (count * shape[0] * shape[1]))
            height, width = (math.ceil(n * scale / side) * side for n in shape)
        return height, width

    def times_of(self, found: Sampled) -> list[float]:
        """The time of each group of pictures in seconds: the mean of its first and last one."""
        indices = [*found.indices, *[found.indices[-1]] * (-len(found.indices) % self.depth)]
        times = [i / found.rate for i in indices]
        return [(times[i] + times[i + self.depth - 1]) / 2 for i in range(0, len(times), self.depth)]


@dataclass(frozen=True, eq=False)
class VideosInPlace:
    """Turns a video into the model's input and its placeholders."""

    processor: VideoProcessor
    token: int
    seconds: bool = False  # whether positions depend on the time between pictures
    around: tuple[str, str] = field(default=("<|vision_start|>", "<|vision_end|>"))

    def cut(self, file: object) -> list[MediaInPlace]:
        """Return the video of a file, or each group of its pictures if the text has their times. Raises ValueError."""
        processor = self.processor
        found = processor.read(file)
        numbers = processor.numbers(found.pictures)
        each = numbers.shape[2] * numbers.shape[3] // processor.side**2
        if isinstance(processor, TimedProcessor):
            groups = numbers.split(processor.depth)
            return [
                MediaInPlace([group.numpy()], [self.token] * each, f"<{time:.1f} seconds>{self.around[0]}")
                for group, time in zip(groups, processor.times_of(found), strict=True)
            ]
        ids = [self.token] * (each * (len(numbers) // processor.depth))
        if not self.seconds:
            return [MediaInPlace([numbers.numpy()], ids)]
        total = found.total
        sampled = len(found.indices) / total * found.rate
        return [MediaInPlace([TimedVideo(numbers, processor.depth / sampled)], ids)]

    def words(self, marker: str, places: Sequence[MediaInPlace]) -> str:
        """The text in the place of a video."""
        return "".join(f"{place.label}{marker}{self.around[1]}" for place in places)


def _config_of(folder: Path) -> tuple[dict[str, Any], Path]:
    """Return the settings of a directory's video processor and their file.

    Without a file for videos, the file for pictures is used, as in transformers. Raises ValueError if there is neither.
    """
    whole = read_json(folder / PROCESSOR) if (folder / PROCESSOR).is_file() else None
    if isinstance(whole, dict) and isinstance(found := whole.get("video_processor"), dict):
        return found, folder / PROCESSOR
    for name in (FILE, PREPROCESSOR):
        if (folder / name).is_file():
            config = read_json(folder / name)
            if not isinstance(config, dict):
                raise ValueError(f"{folder / name} has no settings of videos")
            return config, folder / name
    raise ValueError(f"{folder} has no {FILE}, which says how videos are read; put the model's own there")
