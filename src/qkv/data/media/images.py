"""Images as arrays: decode any format that Pillow reads, resize, crop, normalize, and convert back."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...core.optional_libraries import need
from ...core.spec import brief
from ..source import Skipped

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = NDArray[np.uint8]
"""(C, H, W), 0 … 255, with C of 3 for colors and 1 for gray."""
Deep = np.ma.MaskedArray[Any, np.dtype[np.uint16]]
"""(1, H, W) of 16 bits, as in files; masked pixels are transparent."""
Size = tuple[int, int]  # height and width
Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels
Color = Literal["rgb", "gray"]
Fit = Literal["crop", "stretch", "pad"]
Filter = Literal["bilinear", "bicubic", "lanczos", "box", "hamming", "nearest"]

FILTERS: dict[int, Filter] = {
    0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming",
}  # by Pillow's numbers, which files of the Hub have  # fmt: skip
CHANNELS: dict[Color, int] = {"rgb": 3, "gray": 1}
MOST_PIXELS = 64 << 20  # in one image; a decoded one takes up to 3 bytes per pixel
_STRETCH = 10.0  # factor
MOST_SIDE = 65_535  # the limit of JPEG; for an image of a single line, Pillow needs many times its size
MOST_FRAMES = 10_000

# Formats that Pillow only recognizes, or reads with another program.
NOT_READ = frozenset(("BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF"))

# Pillow's modes in which numbers are intensities or palette indices; 32-bit numbers are measurements.
_PLAIN = {"1", "L", "P", "RGB", "CMYK", "YCbCr", "HSV", "RGBX"}
_ALPHA = {"LA", "PA", "RGBA", "La", "RGBa"}


# -- decoding ----------------------------------------------------------------------------------------------------------


def decode(
    data: bytes, color: Color = "rgb", most: int = MOST_PIXELS, bits: int = 16, where: str = "a picture"
) -> Pixels | Skipped:
    """Decode the image in the bytes of a file, rotated according to its EXIF data; or return why it is skipped.

    An image of more than `most` pixels, or more than `MOST_SIDE` on a side, is rejected by its header, before anything is
    decoded. Transparent pixels become white; 16 bits per channel, of which gray files use `bits`, become 8. `where` names
    the image in warnings.
    """
    frames = pages(data, color, most, bits, where, only_first=True)
    return frames if isinstance(frames, Skipped) else frames[0]


def pages(
    data: bytes,
    color: Color = "rgb",
    most: int = MOST_PIXELS,
    bits: int = 16,
    where: str = "a picture",
    only_first: bool = False,
) -> list[Pixels] | Skipped:
    """Decode every image in a file, the frames of an animation or pages, see `decode`; `most` pixels in all."""
    frames = _frames(data, color, most, only_first)
    if isinstance(frames, Skipped) or not isinstance(frames[0], np.ma.MaskedArray):
        return frames
    return _eight_bits(frames, color, bits, where)


def depth(files: Iterable[bytes]) -> int | None:
    """How many bits 16-bit gray files use, 8, 12 or 16: cameras store 12 bits in 16, and few formats can record that. None
    if there is no such file, or all are black."""
    brightest = 0
    for data in files:
        if _is_deep(data):
            frames = _frames(data, "gray", MOST_PIXELS, only_first=True)
            if not isinstance(frames, Skipped):
                brightest = max(brightest, int(np.ma.getdata(frames[0]).max()))
    return next(n for n in (8, 12, 16) if brightest < 1 << n) if brightest else None


def _is_deep(data: bytes) -> bool:
    """Whether a file is gray of 16 bits, by its header."""
    need("reading a picture", "PIL")
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=formats()) as image:
            return image.mode.startswith("I")
    except Exception:  # as in `_frames`
        return False


def _frames(data: bytes, color: Color, most: int, only_first: bool) -> list[Any] | Skipped:
    """The frames of a file: `Pixels`, or `Deep` for 16-bit gray."""
    need("reading a picture", "PIL")
    from PIL import Image, UnidentifiedImageError

    frames: list[Any] = []
    try:
        with Image.open(io.BytesIO(data), formats=formats()) as image:
            count = 1 if only_first else getattr(image, "n_frames", 1)
            if count > MOST_FRAMES:
                return Skipped(f"of more than {MOST_FRAMES:,} frames")
            if count * image.width * image.height > most:
                return _too_large(most)
            total = 0
            for number in range(count):
                image.seek(number)
                total += image.width * image.height  # pages may differ in size
                if total > most:
                    return _too_large(most)
                if max(image.size) > MOST_SIDE:
                    return Skipped(f"larger than {MOST_SIDE:,} pixels on a side")
                frame = _array(image, color)
                if isinstance(frame, Skipped):
                    return frame
                frames.append(frame)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return _too_large(most)
    except UnidentifiedImageError:
        return Skipped("empty" if not data else "no picture in a known format")
    except Exception as error:  # Pillow's forty decoders raise errors of many types
        return Skipped("truncated" if "truncated" in str(error) else "damaged")
    return frames


@cache
def formats() -> list[str]:
    """The formats that Pillow may read."""
    need("reading a picture", "PIL")
    from PIL import Image

    Image.init()
    return [name for name in Image.ID if name not in NOT_READ]


def read(path: str | Path, color: Color = "rgb", most: int = MOST_PIXELS, bits: int = 16) -> Pixels:
    """Read an image file. Raises ValueError that names the file if it can't be read."""
    pixels = decode(content(path), color, most, bits, str(path))
    if isinstance(pixels, Skipped):
        raise ValueError(f"{brief(path)} can't be read as a picture: it is {pixels}")
    return pixels


def content(path: str | Path) -> bytes:
    """The bytes of a file. Raises ValueError that names it if it does not exist."""
    path = Path(path).expanduser()
    if path.is_dir():
        raise ValueError(f"{brief(path)} is a folder; give the files in it")
    if not path.is_file():
        raise ValueError(f"there is no file {brief(path)}")
    return path.read_bytes()


def _too_large(most: int) -> Skipped:
    return Skipped(f"larger than {most:,} pixels")


def _array(image: Image, color: Color) -> Pixels | Deep | Skipped:
    need("reading a picture", "PIL")
    from PIL import Image, ImageOps

    deep = ";16" in str(getattr(image, "tile", ""))  # before it is decoded
    scaled = getattr(image, "format", "") == "PPM"  # Pillow scales its numbers to 16 bits
    image = ImageOps.exif_transpose(image)
    mode = image.mode
    if mode.startswith("I;16") or (mode == "I" and scaled):
        values = np.asarray(image).astype(np.uint16)[None]
        clear = image.info.get("transparency")
        return np.ma.array(values, mask=np.zeros_like(values, bool) if clear is None else values == clear)
    elif mode in _ALPHA or "transparency" in image.info:
        image = image.convert("LA" if mode == "La" else "RGBA").convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    elif mode not in _PLAIN:
        return Skipped(f"of numbers that are no brightness (mode {mode})")
    if deep and mode in ("RGB", "RGBA") and 0 < np.asarray(image).reshape(-1, len(image.getbands()))[:, :3].max() < 16:
        return Skipped("of colors of 16 bits which use 12 at most; save them with 8 bits")  # Pillow kept 4 of these
    flat = np.asarray(image.convert("RGB" if color == "rgb" else "L"))
    return np.ascontiguousarray(flat.transpose(2, 0, 1)) if flat.ndim == 3 else flat[None]


def _eight_bits(deep: list[Deep], color: Color, bits: int, where: str) -> list[Pixels]:
    """Convert 16-bit gray frames, of which `bits` are used, to 8 bits."""
    most = (1 << bits) - 1
    brightest = max(int(frame.filled(0).max()) for frame in deep)
    if brightest > most:
        _warn_once(where, f"has values up to {brightest:,}, which are cut off at {most:,}", "16")
    elif bits == 16 and 0 < brightest < 1 << 12:
        _warn_once(where, f"has 16 bits a pixel and no value above {brightest:,}, so it comes out nearly black", "12")
    frames = (np.where(frame.mask, 255, frame.data.clip(max=most) >> (bits - 8)).astype(np.uint8) for frame in deep)
    return [frame.repeat(CHANNELS[color], 0) for frame in frames]


_warned: set[tuple[str, str]] = set()


def _warn_once(where: str, problem: str, bits: str) -> None:
    """Warn of the first such file in a folder."""
    folder = where.rpartition("/")[0]
    if (folder, bits) not in _warned or not folder:
        _warned.add((folder, bits))
        warnings.warn(
            f"{where} {problem}; if its pictures are of {bits} bits, say so by data.bits={bits} (task.bits={bits} where the "
            "source has no such setting)",
            stacklevel=4,
        )


# -- resizing ----------------------------------------------------------------------------------------------------------


def resized(pixels: Pixels, size: Size, filter: Filter = "bilinear", box: Box | None = None) -> Pixels:
    """Resize an image, or a box of it. Filters are antialiased; "nearest" takes single pixels, as masks need."""
    if pixels.shape[1:] == tuple(size) and box is None:
        return pixels
    need("resizing a picture", "PIL")
    from PIL import Image

    image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    flat = np.asarray(image.resize(size[::-1], Image.Resampling[filter.upper()], box))
    return np.ascontiguousarray(flat.transpose(2, 0, 1)) if flat.ndim == 3 else flat[None]


def fitted(pixels: Pixels, size: Size, fit: Fit = "crop", filter: Filter = "bilinear", fill: int = 0) -> Pixels:
    """Resize an image to a size of another aspect ratio.

    "crop" fills the size and keeps the center, "pad" fits inside it and pads with `fill`, "stretch" distorts it.
    """
    height, width = pixels.shape[1:]
    if (height, width) == tuple(size) or fit == "stretch":
        return resized(pixels, size, filter)
    ratios = (size[0] / height, size[1] / width)
    ratio = max(ratios) if fit == "crop" else min(ratios)
    scaled = resized(pixels, (max(1, round(height * ratio)), max(1, round(width * ratio))), filter)
    if fit == "crop":
        top, left = ((have - want) // 2 for have, want in zip(scaled.shape[1:], size, strict=True))
        return np.ascontiguousarray(scaled[:, top : top + size[0], left : left + size[1]])
    out = np.full((len(pixels), *size), fill, np.uint8)
    top, left = ((want - have) // 2 for have, want in zip(scaled.shape[1:], size, strict=True))
    out[:, top : top + scaled.shape[1], left : left + scaled.shape[2]] = scaled
    return out


def narrow(shape: Size, size: Size) -> bool:
    """Whether a picture is so long and narrow that, enlarged until its shorter side fills a size, it exceeds
    `MOST_PIXELS`."""
    ratio = max(size[0] / shape[0], size[1] / shape[1])
    return shape[0] * shape[1] * ratio**2 > MOST_PIXELS


def check_ratio(shape: Size, size: Size, where: str) -> None:
    """Raise ValueError, naming the picture, if it is too `narrow` to be enlarged to a size."""
    if narrow(shape, size):
        raise ValueError(
            f"{where} has {shape[0]:,} × {shape[1]:,} pixels, which is too long and narrow to be enlarged to {size[0]} × "
            f"{size[1]}; cut a piece from it"
        )


def warn_of_stretch(shape: Size, size: Size, where: str) -> None:
    """Warn, naming the picture, if stretching it to a size changes the ratio of its sides by more than `_STRETCH`."""
    ratio = shape[1] * size[0] / (shape[0] * size[1])
    if not 1 / _STRETCH <= ratio <= _STRETCH:
        warnings.warn(
            f"{where} has {shape[0]:,} × {shape[1]:,} pixels and is stretched to {size[0]} × {size[1]}, in which little "
            "of it can be seen; a piece of it may be read better",
            stacklevel=4,
        )


# -- normalization -----------------------------------------------------------------------------------------------------


def normalized(pixels: NDArray[Any], mean: tuple[float, ...], std: tuple[float, ...]) -> NDArray[np.float32]:
    """(x / 255 − mean) / std for each channel of (…, C, H, W)."""
    mean_, std_ = np.asarray(mean, np.float32), np.asarray(std, np.float32)
    scale, shift = np.float32(1) / (np.float32(255) * std_), mean_ / std_
    out: NDArray[np.float32] = np.multiply(pixels, scale[:, None, None], dtype=np.float32)
    np.subtract(out, shift[:, None, None], out=out)
    return out


def by_table(
    pixels: Pixels, mean: tuple[float, ...], std: tuple[float, ...], factor: float = 1 / 255
) -> NDArray[np.float32]:
    """(x · factor − mean) / std for each channel of (C, H, W), each number rounded as in transformers: after each step."""
    scaled = (np.arange(256) * factor).astype(np.float32)
    mean_, std_ = (np.asarray(numbers, np.float32)[:, None] for numbers in (mean, std))
    return np.stack([values[channel] for values, channel in zip((scaled - mean_) / std_, pixels, strict=True)])


def filter_of(number: object) -> Filter:
    """The filter of one of Pillow's numbers. Raises ValueError for another number."""
    if isinstance(number, bool) or not isinstance(number, int) or number not in FILTERS:
        known = ", ".join(f"{number} ({name})" for number, name in FILTERS.items())
        raise ValueError(f"resample is {brief(number)}, and what is built is {known}")
    return FILTERS[number]


def denormalized(numbers: NDArray[Any], mean: tuple[float, ...], std: tuple[float, ...]) -> Pixels:
    """The inverse of `normalized`: pixels, clipped to 0 … 255."""
    mean_, std_ = (np.asarray(value, np.float32)[:, None, None] for value in (mean, std))
    pixels = (np.asarray(numbers, np.float32) * std_ + mean_) * 255
    return np.rint(pixels).clip(0, 255).astype(np.uint8)


def statistics(pictures: list[Pixels]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, scaled to 0 … 1, over all pixels of some images, to four decimals."""
    count = sum(picture[0].size for picture in pictures)
    total = sum(np.asarray(p, np.float64).sum((1, 2)) for p in pictures) / 255
    squares = sum(np.square(p, dtype=np.float64).sum((1, 2)) for p in pictures) / 255**2
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 1e-6))
    return tuple(np.round(mean, 4).tolist()), tuple(np.round(std, 4).tolist())
