"""How pictures, sounds and series become the numbers that a model reads, one class for each kind of media."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from ....core.spec import Spec, brief
from ....data.media import given
from ....data.media.audio import Wave, encode, resampled
from ....data.media.images import denormalized, normalized, resized, statistics, warn_of_stretch
from ....data.media.mel_spectrogram import log_mel
from ....data.media.png import png
from ....data.media.sound_augment import masked_stretch
from ....data.source import Skipped
from ....nn.layers.patches import Patches
from ..pictures import with_channels

Numbers = NDArray[np.float32]


class MediaNumbers(Spec, role="media-numbers"):
    """Base class: how one kind of media becomes numbers (channels, height, width).

    size:      height and width of what the model reads: pixels; mel bands and frames; 1 and the length of a series.
    channels:  of pictures.
    mean, std: for normalization; by default measured on some training examples.
    """

    name: ClassVar[str]

    size: tuple[int, int] = (0, 0)
    channels: int = 1
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def of_model(self, reads: Patches) -> Self:
        """With the sizes of the model's patches."""
        return self.replace({"size": self.size if all(self.size) else reads.image, "channels": reads.channels})

    def measured(self, values: Sequence[Any]) -> Self:
        """With mean and deviation of training examples, unless they are given. Raises ValueError if there are none."""
        if self.mean and self.std:
            return self
        if not values:
            raise ValueError(
                f"the training data have no {self.name}, and the model reads some; leave it out of the model"
            )
        mean, std = self._statistics(values)
        return self.replace({"mean": self.mean or mean, "std": self.std or std})

    def _statistics(self, values: Sequence[Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        plain = self.replace({"mean": (0.0,), "std": (1.0,)})
        numbers = np.stack([plain(value) for value in values])
        return (float(numbers.mean()),), (max(float(numbers.std()), 1e-6),)

    def __call__(self, value: Any, random: np.random.Generator | None = None) -> Numbers:
        """The numbers of one picture, sound or series; in training with `random` changes. Raises ValueError."""
        raise NotImplementedError

    def shown(self, numbers: Numbers, value: object) -> dict[str, Any]:
        """A picture for the report, see `look.pictures`."""
        raise NotImplementedError


class PictureNumbers(MediaNumbers, kind="image"):
    """Pictures, stretched to the model's size: (x / 255 − mean) / std.

    shift: in training, the most by which a picture is moved in each direction, in pixels.
    """

    name: ClassVar[str] = "image"

    shift: int = Field(default=0, ge=0)

    def _pixels(self, value: Any) -> NDArray[np.uint8]:
        pixels = given.picture(value, "gray" if self.channels == 1 else "rgb")
        warn_of_stretch(pixels.shape[1:], self.size, given.name_of(value, "picture"))
        return resized(with_channels(pixels, self.channels), self.size)

    def _statistics(self, values: Sequence[Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return statistics([self._pixels(value) for value in values])

    def __call__(self, value: Any, random: np.random.Generator | None = None) -> Numbers:
        pixels = self._pixels(value)
        if random is not None and self.shift:
            down, right = random.integers(-self.shift, self.shift + 1, 2).tolist()
            pad = np.pad(pixels, ((0, 0), (self.shift, self.shift), (self.shift, self.shift)), "edge")
            top, left = self.shift + down, self.shift + right
            pixels = np.ascontiguousarray(pad[:, top : top + self.size[0], left : left + self.size[1]])
        return normalized(pixels, self.mean, self.std)

    def shown(self, numbers: Numbers, value: object) -> dict[str, Any]:
        return {"kind": "image", "image": png(denormalized(numbers, self.mean, self.std))}


class SoundNumbers(MediaNumbers, kind="sound"):
    """Sounds as log-mel spectrograms, cut or padded with silence to the model's length, in training at a random place.

    n_fft, hop: samples in a frame, and from one frame to the next.
    rate:       samples per second that the model reads; by default that of the training sounds.
    mask:       in training, the largest share of the time and of the mel bands that is masked (SpecAugment, Park et al.
                2019).
    """

    name: ClassVar[str] = "sound"

    n_fft: int = Field(default=256, ge=16)
    hop: int = Field(default=80, ge=1)
    rate: int | None = Field(default=None, gt=0)
    mask: float = Field(default=0.15, ge=0, lt=1)

    def measured(self, values: Sequence[Any]) -> Self:
        heard = self if self.rate is not None or not values else self.replace({"rate": _heard(values[0])[1]})
        return super(SoundNumbers, heard).measured(values)

    def wave(self, value: object) -> Wave:
        """The samples of a sound at the model's rate."""
        samples, rate = _heard(value)
        return resampled(samples, rate, self.rate or rate)

    def __call__(self, value: Any, random: np.random.Generator | None = None) -> Numbers:
        samples, length = self.wave(value), self.size[1] * self.hop
        room = abs(length - len(samples))
        start = room // 2 if random is None else int(random.integers(0, room + 1))
        if len(samples) >= length:
            samples = samples[start : start + length]
        else:
            samples = np.pad(samples, (start, room - start))
        sound = torch.from_numpy(np.ascontiguousarray(samples, np.float32))[None]
        mels = log_mel(sound, self.rate or 16_000, n_mels=self.size[0], n_fft=self.n_fft, hop=self.hop)
        numbers = ((mels - self.mean[0]) / self.std[0]).numpy()
        if random is None or not self.mask:
            return numbers
        for axis, size in enumerate(self.size):
            numbers[masked_stretch(axis + 1, size, int(size * self.mask), random)] = 0
        return numbers

    def shown(self, numbers: Numbers, value: object) -> dict[str, Any]:
        heard = base64.b64encode(encode(self.wave(value), self.rate or 16_000)).decode()
        return {"kind": "sound", "values": np.round(numbers[0], 2).tolist(), "sound": heard}


class SeriesNumbers(MediaNumbers, kind="series"):
    """Series of numbers, cut to the model's length or padded with their mean: (x − mean) / std."""

    name: ClassVar[str] = "series"

    def __call__(self, value: Any, random: np.random.Generator | None = None) -> Numbers:
        series = (
            np.asarray(value, np.float32) if hasattr(value, "__len__") and not isinstance(value, str) else np.empty(0)
        )
        if series.ndim != 1 or not len(series) or not np.isfinite(series).all():
            raise ValueError(f"a series is a list of numbers, not {brief(value)}")
        series = series[: self.size[1]]
        padded: Numbers = np.pad(series, (0, self.size[1] - len(series)), constant_values=float(series.mean()))
        scaled: Numbers = ((padded - self.mean[0]) / self.std[0]).astype(np.float32)
        return scaled[None, None]

    def shown(self, numbers: Numbers, value: object) -> dict[str, Any]:
        return {"kind": "series", "values": np.round(numbers[0, 0], 3).tolist()}


def _heard(value: Any) -> tuple[Wave, int]:
    """The samples and the rate of a sound; its samples may be made when they are read."""
    if isinstance(value, tuple) and len(value) == 2:
        made = value[0]() if callable(value[0]) else value[0]
        if isinstance(made, Skipped):
            raise ValueError(f"a sound can't be read: it is {made}")
        value = made if isinstance(made, tuple) else (made, value[1])
        if not isinstance(value[0], np.ndarray):
            value = value[0]
    return given.sound(value)
