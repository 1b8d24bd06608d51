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

from ..source import Skipped

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = NDArray[np.uint8]
"""(C, H, W), 0 … 255, with C of 3 for colors and 1 for gray."""
Deep = np.ma.MaskedArray[Any, np.dtype[np.uint16]]
"""(1, H, W) of 16 bits, as files have it; what is masked is transparent."""
Size = tuple[int, int]  # height and width
Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels
Color = Literal["rgb", "gray"]
Fit = Literal["crop", "stretch", "pad"]
Filter = Literal["bilinear", "bicubic", "nearest"]

CHANNELS: dict[Color, int] = {"rgb": 3, "gray": 1}
MOST_PIXELS = 64 << 20  # of one picture; a decoded one takes up to 3 bytes a pixel
MOST_SIDE = 65_535  # what JPEG can hold; Pillow takes many times its size for a picture of a single line
MOST_FRAMES = 10_000

# What Pillow only recognizes, or has another program read.
NOT_READ = frozenset(("BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF"))

# The modes of Pillow in which a number is an intensity or a place in a palette; 32-bit numbers are measurements.
_PLAIN = {"1", "L", "P", "RGB", "CMYK", "YCbCr", "HSV", "RGBX"}
_ALPHA = {"LA", "PA", "RGBA", "La", "RGBa"}


# -- from bytes --------------------------------------------------------------------------------------------------------


def decode(
    data: bytes, color: Color = "rgb", most: int = MOST_PIXELS, bits: int = 16, where: str = "a picture"
) -> Pixels | Skipped:
    """Decode the image in the bytes of a file, rotated according to its EXIF data; or return why it is skipped.

    A picture of more than `most` pixels, or more than `MOST_SIDE` on a side, is refused by what its header says, before
    anything is decoded. What is transparent lies on white; 16 bits a channel become 8, of which gray files use `bits`.
    `where` names the picture in warnings.
    """
    found = pages(data, color, most, bits, where, only_first=True)
    return found if isinstance(found, Skipped) else found[0]


def pages(
    data: bytes,
    color: Color = "rgb",
    most: int = MOST_PIXELS,
    bits: int = 16,
    where: str = "a picture",
    only_first: bool = False,
) -> list[Pixels] | Skipped:
    """Decode every image in a file, the frames of an animation or pages, see `decode`; `most` pixels in all."""
    found = _frames(data, color, most, only_first)
    if isinstance(found, Skipped) or not isinstance(found[0], np.ma.MaskedArray):
        return found
    return _eight_bits(found, color, bits, where)


def depth(files: Iterable[bytes]) -> int | None:
    """How many bits the gray files of 16 bits among these use, 8, 12 or 16: cameras write 12 into 16, and few
    formats can say so. None where there is no such file, or all are black."""
    brightest = 0
    for data in files:
        if _is_deep(data):
            found = _frames(data, "gray", MOST_PIXELS, only_first=True)
            if not isinstance(found, Skipped):
                brightest = max(brightest, int(np.ma.getdata(found[0]).max()))
    return next(n for n in (8, 12, 16) if brightest < 1 << n) if brightest else None


def _is_deep(data: bytes) -> bool:
    """Whether a file is gray of 16 bits, by its header."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=formats()) as image:
            return image.mode.startswith("I")
    except Exception:  # as in `_frames`
        return False


def _frames(data: bytes, color: Color, most: int, only_first: bool) -> list[Any] | Skipped:
    """`Pixels`, or `Deep` ones of a file in gray of 16 bits."""
    from PIL import Image, UnidentifiedImageError

    found: list[Any] = []
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
                made = _array(image, color)
                if isinstance(made, Skipped):
                    return made
                found.append(made)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return _too_large(most)
    except UnidentifiedImageError:
        return Skipped("empty" if not data else "no picture in a known format")
    except Exception as error:  # whatever the reader of a format stumbles over: there are forty of them
        return Skipped("truncated" if "truncated" in str(error) else "damaged")
    return found


@cache
def formats() -> list[str]:
    """The formats that Pillow may read."""
    from PIL import Image

    Image.init()
    return [name for name in Image.ID if name not in NOT_READ]


def read(path: str | Path, color: Color = "rgb", most: int = MOST_PIXELS, bits: int = 16) -> Pixels:
    """Read an image file. Raises ValueError that names the file if it can't be read."""
    found = decode(content(path), color, most, bits, str(path))
    if isinstance(found, Skipped):
        raise ValueError(f"{str(path)!r} can't be read as a picture: it is {found}")
    return found


def content(path: str | Path) -> bytes:
    """The bytes of a file. Raises ValueError that names it if it does not exist."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise ValueError(
            f"there is no file {str(path)!r}"
            if not path.is_dir()
            else f"{str(path)!r} is a folder; give the files in it"
        )
    return path.read_bytes()


def _too_large(most: int) -> Skipped:
    return Skipped(f"larger than {most:,} pixels")


def _array(image: Image, color: Color) -> Pixels | Deep | Skipped:
    from PIL import Image as images
    from PIL import ImageOps

    deep = ";16" in str(getattr(image, "tile", ""))  # before it is decoded
    scaled = getattr(image, "format", "") == "PPM"  # whose numbers Pillow scales to 16 bits
    image = ImageOps.exif_transpose(image)
    mode = image.mode
    if mode.startswith("I;16") or (mode == "I" and scaled):
        values = np.asarray(image).astype(np.uint16)[None]
        clear = image.info.get("transparency")
        return np.ma.array(values, mask=np.zeros_like(values, bool) if clear is None else values == clear)
    elif mode in _ALPHA or "transparency" in image.info:
        image = image.convert("LA" if mode == "La" else "RGBA").convert("RGBA")
        image = images.alpha_composite(images.new("RGBA", image.size, "white"), image)
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
        _tell(where, f"has values up to {brightest:,}, which are cut off at {most:,}", "16")
    elif bits == 16 and 0 < brightest < 1 << 12:
        _tell(where, f"has 16 bits a pixel and no value above {brightest:,}, so it comes out nearly black", "12")
    made = (np.where(frame.mask, 255, frame.data.clip(max=most) >> (bits - 8)).astype(np.uint8) for frame in deep)
    return [frame.repeat(CHANNELS[color], 0) for frame in made]


_told: set[tuple[str, str]] = set()


def _tell(where: str, said: str, bits: str) -> None:
    """Warn of the first such file of a folder."""
    folder = where.rpartition("/")[0]
    if (folder, bits) not in _told or not folder:
        _told.add((folder, bits))
        warnings.warn(
            f"{where} {said}; if its pictures are of {bits} bits, say so by data.bits={bits} (task.bits={bits} where the "
            "source has no such setting)",
            stacklevel=4,
        )


# -- to a size ---------------------------------------------------------------------------------------------------------


def resized(pixels: Pixels, size: Size, filter: Filter = "bilinear", box: Box | None = None) -> Pixels:
    """Resize an image, or a box of it. Filters are antialiased; "nearest" takes single pixels, as masks need."""
    from PIL import Image

    if pixels.shape[1:] == tuple(size) and box is None:
        return pixels
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    how = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
    flat = np.asarray(image.resize(size[::-1], how.get(filter, Image.Resampling.NEAREST), box))
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
    whole = resized(pixels, (max(1, round(height * ratio)), max(1, round(width * ratio))), filter)
    if fit == "crop":
        top, left = ((have - want) // 2 for have, want in zip(whole.shape[1:], size, strict=True))
        return np.ascontiguousarray(whole[:, top : top + size[0], left : left + size[1]])
    out = np.full((len(pixels), *size), fill, np.uint8)
    top, left = ((want - have) // 2 for have, want in zip(whole.shape[1:], size, strict=True))
    out[:, top : top + whole.shape[1], left : left + whole.shape[2]] = whole
    return out


# -- to numbers for a model --------------------------------------------------------------------------------------------


def normalized(pixels: NDArray[Any], mean: tuple[float, ...], std: tuple[float, ...]) -> NDArray[np.float32]:
    """(x / 255 − mean) / std for each channel of (…, C, H, W)."""
    mean_, std_ = np.asarray(mean, np.float32), np.asarray(std, np.float32)
    scale, shift = np.float32(1) / (np.float32(255) * std_), mean_ / std_
    out: NDArray[np.float32] = np.multiply(pixels, scale[:, None, None], dtype=np.float32)
    np.subtract(out, shift[:, None, None], out=out)
    return out


def denormalized(numbers: NDArray[Any], mean: tuple[float, ...], std: tuple[float, ...]) -> Pixels:
    """The inverse of `normalized`: pixels, clipped to 0 … 255."""
    mean_, std_ = (np.asarray(value, np.float32)[:, None, None] for value in (mean, std))
    whole = (np.asarray(numbers, np.float32) * std_ + mean_) * 255
    found: Pixels = np.rint(whole).clip(0, 255).astype(np.uint8)
    return found


def statistics(pictures: list[Pixels]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, scaled to 0 … 1, over all pixels of some images, to four decimals."""
    count = sum(picture[0].size for picture in pictures)
    total = sum(np.asarray(p, np.float64).sum((1, 2)) for p in pictures) / 255
    squares = sum(np.square(p, dtype=np.float64).sum((1, 2)) for p in pictures) / 255**2
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 1e-6))
    return tuple(np.round(mean, 4).tolist()), tuple(np.round(std, 4).tolist())
