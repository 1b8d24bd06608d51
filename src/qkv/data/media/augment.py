"""Image augmentation: random crops, flips, color jitter, erasing, RandAugment, mixup and CutMix, in NumPy.

Augmentations map (N, C, H, W) of uint8 to the same, independently for each image. A new one is a subclass of `Augmentation`
with a `kind` and a `__call__`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from ...core.spec import Spec
from . import image_ops
from .images import Pixels, Size, resized

Random = np.random.Generator
Probability = Annotated[float, Field(ge=0, le=1)]


def _ordered(value: tuple[float, float]) -> tuple[float, float]:
    if not 0 < value[0] <= value[1]:
        raise ValueError(f"a range is two numbers above 0, minimum and maximum, not {value}")
    return value


Range = Annotated[tuple[float, float], AfterValidator(_ordered)]


class Augmentation(Spec, role="augmentation"):
    """A random change to images."""

    def __call__(self, pixels: Pixels, random: Random) -> Pixels:
        raise NotImplementedError(f"{type(self).__name__} does not define its change")


# -- geometry ----------------------------------------------------------------------------------------------------------


class RandomCrop(Augmentation, kind="random-crop"):
    """Pad each side by `padding` pixels, black or mirrored, and crop at a random position (He et al. 2016)."""

    padding: int = Field(default=4, ge=1)
    fill: Literal["black", "mirror"] = "black"

    def __call__(self, pixels: Pixels, random: Random) -> Pixels:
        n, _, height, width = pixels.shape
        if self.fill == "mirror" and self.padding >= min(height, width):
            raise ValueError(
                f"pictures of {height} × {width} pixels can't be mirrored for {self.padding}; lower padding"
            )
        around = ((0, 0), (0, 0), (self.padding,) * 2, (self.padding,) * 2)
        padded = np.pad(pixels, around, "reflect") if self.fill == "mirror" else np.pad(pixels, around)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), (2, 3))
        top, left = random.integers(0, 2 * self.padding + 1, (2, n))
        return windows[np.arange(n), :, top, left]


class RandomResizedCrop(Augmentation, kind="random-resized-crop"):
    """Crop a random box with `scale` of the area and a log-uniform `ratio` of width to height, and resize it (Szegedy et al.
    2015). If ten such boxes don't fit into an image, the largest centered one is taken.

    As the first augmentation it crops the original images, before they are resized to the model's input size.
    """

    scale: Range = (0.08, 1.0)
    ratio: Range = (3 / 4, 4 / 3)

    def __call__(self, pixels: Pixels, random: Random) -> Pixels:
        size = (pixels.shape[2], pixels.shape[3])
        return np.stack([self.cut(picture, size, random) for picture in pixels])

    def cut(self, picture: Pixels, size: Size, random: Random) -> Pixels:
        """A random crop of one image, resized to `size`."""
        height, width = picture.shape[1:]
        tall, wide, top, left = (v.item() for v in boxes(1, (height, width), self.scale, self.ratio, random))
        return resized(picture, size, box=(left, top, left + wide, top + tall))


class Flip(Augmentation, kind="flip"):
    """Horizontal flip with probability `p`."""

    p: Probability = 0.5

    def __call__(self, pixels: Pixels, random: Random) -> Pixels:
        chosen = random.random(len(pixels)) < self.p
        return np.where(chosen[:, None, None, None], pixels[..., ::-1], pixels)


def boxes(
    n: int, size: Size, scale: tuple[float, float], ratio: tuple[float, float], random: Random
) -> tuple[NDArray[np.int64], ...]:
    """Heights, widths, tops and lefts of n random boxes in images of `size`. If ten draws don't fit, a box is the largest
    centered one of such a ratio."""
    height, width = size
    area = height * width * random.uniform(*scale, (10, n))
    shape = np.exp(random.uniform(np.log(ratio[0]), np.log(ratio[1]), (10, n)))
    tall, wide = np.rint(np.sqrt(area / shape)).astype(int), np.rint(np.sqrt(area * shape)).astype(int)
    fits = (tall > 0) & (tall <= height) & (wide > 0) & (wide <= width)
    first, every = fits.argmax(0), np.arange(n)
    most = np.clip(width / height, *ratio)
    largest = (min(height, round(width / most)), min(width, round(height * most)))
    lost = ~fits.any(0)
    tall = np.where(lost, largest[0], tall[first, every])
    wide = np.where(lost, largest[1], wide[first, every])
    top, left = (np.floor(random.random((2, n)) * (np.array([height - tall, width - wide]) + 1))).astype(int)
    return tall, wide, np.where(lost, (height - tall) // 2, top), np.where(lost, (width - wide) // 2, left)


# -- color and content -------------------------------------------------------------------------------------------------


class ColorJitter(Augmentation, kind="color-jitter"):
    """Random brightness, contrast, saturation and hue, in random order (Krizhevsky et al. 2012; Howard 2013).

    The first three draw a factor f within 1 ± the setting: f x + (1 − f) y, where y is black, the mean of the gray image, or
    the gray image. Hue is rotated by up to this share of the circle. Of gray images, only brightness and contrast change.
    """

    brightness: float = Field(default=0.4, ge=0)
    contrast: float = Field(default=0.4, ge=0)
    saturation: float = Field(default=0.4, ge=0)
    hue: float = Field(default=0.0, ge=0, le=0.5)

    def __call__(self, pixels: Pixels, random: Random) -> Pixels:
        factors = [self.brightness, self.contrast, self.saturation]
        drawn = [random.uniform(max(0.0, 1 - f), 1 + f, len(pixels)) for f in factors]
        drawn.append(random.uniform(-self.hue, self.hue, len(pixels)))
        active = [i for i, amount in enumerate((*factors, self.hue)) if amount and (i < 2 or pixels.shape[1] == 3)]
        order = random.permuted(np.tile(active, (len(pixels), 1)), axis=1)
        out = pixels.copy()
        for step in range(len(active)):
            for i in active:
                now = order[:, step] == i
                if now.any():
                    out[now] = _JITTERS[i](out[now], drawn[i][now])
        return out


_JITTERS = (
    image_ops.adjust_brightness,
    image_ops.adjust_contrast,
    image_ops.adjust_saturation,
    image_ops.adjust_hue,
)


class RandomErasing(Augmentation, kind="random-erasing"):
    """With probability `p`, fill a box of `scale` of the area with noise or the mean color (Zhong et al. 2020)."""

    p: Probability = 0.25
    scale: Range = (0.02, 0.33)
    ratio: Range = (0.3, 3.3)
    fill: Literal["noise", "mean"] = "noise"

    def __call__(self, pixels: Pixels, random: Random) -> Pixels:
        n, _, height, width = pixels.shape
        chosen = random.random(n) < self.p
        inside = inside_of(boxes(n, (height, width), self.scale, self.ratio, random), (height, width))
        inside[~chosen] = False
        mask = np.broadcast_to(inside[:, None], pixels.shape)
        out = pixels.copy()
        if self.fill == "noise":
            out[mask] = random.integers(0, 256, int(mask.sum()), np.uint8)
        else:
            mean = np.broadcast_to(pixels.mean((2, 3), keepdims=True).astype(np.uint8), pixels.shape)
            out[mask] = mean[mask]
        return out


def inside_of(boxes: tuple[NDArray[np.int64], ...], size: Size) -> NDArray[np.bool_]:
    """(N, H, W): whether each pixel is in the box of its image; boxes are heights, widths, tops and lefts."""
    tall, wide, top, left = (value[:, None] for value in boxes)
    rows, columns = np.arange(size[0]), np.arange(size[1])
    return ((rows >= top) & (rows < top + tall))[:, :, None] & ((columns >= left) & (columns < left + wide))[:, None]


class RandAugment(Augmentation, kind="rand-augment"):
    """Apply `operations` random ones of fourteen, in sequence, each with the same `magnitude` of 0 … 10 (Cubuk et al. 2020).

    At 10: rotation by 30°, shear by 0.3, shift by 0.45 of the image, in either direction; color, contrast, brightness and
    sharpness by a factor of 1 ± 0.9; posterization to 4 bits; solarization from 0 on. The others are the identity,
    autocontrast, and histogram equalization. New pixels at the edges are gray.
    """

    operations: int = Field(default=2, ge=1)
    magnitude: float = Field(default=9.0, ge=0, le=10)

    def __call__(self, pixels: Pixels, random: Random) -> Pixels:
        out, level = pixels.copy(), self.magnitude / 10
        for _ in range(self.operations):
            which = random.integers(0, len(OPERATIONS), len(out))
            signs = random.choice([-1.0, 1.0], len(out))
            for i, operation in enumerate(OPERATIONS):
                now = which == i
                if now.any():
                    out[now] = operation(out[now], level * signs[now])
        return out


OPERATIONS: tuple[image_ops.Change, ...] = (
    lambda x, level: x,
    lambda x, level: image_ops.autocontrast(x),
    lambda x, level: image_ops.equalize(x),
    lambda x, level: image_ops.affine(x, angle=30 * level),
    lambda x, level: image_ops.affine(x, shear_x=0.3 * level),
    lambda x, level: image_ops.affine(x, shear_y=0.3 * level),
    lambda x, level: image_ops.affine(x, shift_x=0.45 * level),
    lambda x, level: image_ops.affine(x, shift_y=0.45 * level),
    lambda x, level: image_ops.adjust_saturation(x, 1 + 0.9 * level),
    lambda x, level: image_ops.adjust_contrast(x, 1 + 0.9 * level),
    lambda x, level: image_ops.adjust_brightness(x, 1 + 0.9 * level),
    lambda x, level: image_ops.adjust_sharpness(x, 1 + 0.9 * level),
    lambda x, level: image_ops.posterize(x, 8 - np.rint(4 * abs(level)).astype(int)),
    lambda x, level: image_ops.solarize(x, 256 * (1 - abs(level))),
)
"""The operations of `RandAugment`: functions of images and a magnitude of −1 … 1 for each."""


# -- mixing two images -------------------------------------------------------------------------------------------------

Numbers = NDArray[np.float32]


class Mixing(Spec, role="mixing"):
    """Mixes two images, and their labels in the same proportion λ."""

    def __call__(self, first: Numbers, second: Numbers, random: Random) -> tuple[Numbers, Numbers]:
        raise NotImplementedError(f"{type(self).__name__} does not define how images are mixed")


class MixUp(Mixing, kind="mixup"):
    """λ x + (1 − λ) x′ with λ drawn from Beta(α, α) for each pair (Zhang et al. 2018)."""

    alpha: float = Field(default=0.2, gt=0)

    def __call__(self, first: Numbers, second: Numbers, random: Random) -> tuple[Numbers, Numbers]:
        share = random.beta(self.alpha, self.alpha, len(first)).astype(np.float32)
        weight = share[:, None, None, None]
        return weight * first + (1 - weight) * second, share


class CutMix(Mixing, kind="cutmix"):
    """Paste a box of x′ into x, with √(1 − λ) of its height and width for λ from Beta(α, α), and a random center (Yun et al.
    2019). The box is cropped at the edges, and the returned λ is the share of x that stays visible."""

    alpha: float = Field(default=1.0, gt=0)

    def __call__(self, first: Numbers, second: Numbers, random: Random) -> tuple[Numbers, Numbers]:
        n, _, height, width = first.shape
        side = np.sqrt(1 - random.beta(self.alpha, self.alpha, n))
        edges = []
        for size in (height, width):
            center, half = random.integers(0, size, n), np.floor(side * size).astype(int)
            start = np.maximum(center - half // 2, 0)
            edges.append((start, np.minimum(center - half // 2 + half, size) - start))
        (top, tall), (left, wide) = edges
        inside = inside_of((tall, wide, top, left), (height, width))
        share = 1 - inside.mean((1, 2), dtype=np.float32)
        return np.where(inside[:, None], second, first), share


def mixed(pictures: Numbers, labels: Numbers, kinds: tuple[Mixing, ...], random: Random) -> tuple[Numbers, Numbers]:
    """Mix each image with another one, by one of several kinds; labels are class probabilities."""
    partner, which = random.permutation(len(pictures)), random.integers(0, len(kinds), len(pictures))
    out, share = pictures.copy(), np.ones(len(pictures), np.float32)
    for i, kind in enumerate(kinds):
        now = np.flatnonzero(which == i)
        if len(now):
            out[now], share[now] = kind(pictures[now], pictures[partner[now]], random)
    weight = share[:, None]
    return out, weight * labels + (1 - weight) * labels[partner]
