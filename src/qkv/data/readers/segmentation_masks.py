"""Semantic segmentation data: a folder of images and a folder of masks with the same file names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...core.shuffle import text_hash
from ..holdout import FileSource
from ..media.image_files import SUFFIXES, is_wanted
from ..media.images import MOST_PIXELS, MOST_SIDE, formats
from ..source import Example, Split, Table

Mask = NDArray[np.uint8]  # (H, W)


class Masks(FileSource, kind="masks"):
    """A folder with two subfolders, `images` and `masks`: `image/7.jpg` belongs to the mask `label/7.png`.

    Masks have one channel, or a palette: each number in them is a class, see `Segment`. Splits without a folder of their own
    are held out of the training data.

    classes: what the numbers mean, in their order.
    """

    path: str | None = None
    validation_path: str | None = None
    test_path: str | None = None
    images: str = "image"
    masks: str = "label"
    classes: tuple[str, ...] = ()

    def paths(self, split: Split) -> tuple[Path, ...]:
        given = self.path if split == "train" else getattr(self, f"{split}_path")
        if given is None:
            if split == "train":
                raise ValueError(
                    f"no data: give data.path, a folder with the folders {self.images} and {self.masks} in it"
                )
            return ()
        folder = Path(given).expanduser()
        return folder / self.images, folder / self.masks

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        return text_hash(example["image"].stem)

    def open(self, split: Split) -> Table:
        images, masks = (_by_stem(folder) for folder in self.paths(split))
        alone = sorted(images.keys() ^ masks.keys())
        if alone:
            first = images.get(alone[0]) or masks[alone[0]]
            missing = "mask" if alone[0] in images else "picture"
            raise ValueError(
                f"{str(first)!r} has no {missing} of its name ({len(alone):,} such files); add or move them"
            )
        return [
            {"image": images[stem], "mask": masks[stem], "where": str(images[stem])}
            for stem in sorted(images, key=_natural)
        ]


def _by_stem(folder: Path) -> dict[str, Path]:
    """The images of a folder by file name without suffix."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {str(folder)!r}; pictures and masks lie in folders of their own")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if is_wanted(path.name, SUFFIXES):
            if path.stem in found:
                raise ValueError(f"{str(path)!r} and {found[path.stem].name!r} have one name; leave one of them")
            found[path.stem] = path
    if not found:
        raise ValueError(f"there is no picture in {str(folder)!r}")
    return found


def _natural(stem: str) -> tuple[int, str]:
    """2 before 10."""
    return (int(stem) if stem.isdecimal() else -1, stem)


def read_mask(path: Path) -> Mask:
    """The numbers in a mask's file; 0 and 255 where it has one bit a pixel.

    Raises ValueError that names the file where it can't be read, or has more than one channel or byte a pixel.
    """
    from PIL import Image

    name = repr(str(path))
    try:
        with Image.open(path, formats=formats()) as image:
            large = image.width * image.height > MOST_PIXELS or max(image.size) > MOST_SIDE
            found = np.asarray(image.convert("L") if image.mode == "1" else image) if not large else np.empty(0)
    except Exception as error:  # whatever the reader of a format stumbles over
        raise ValueError(f"{name} can't be read as a mask: {error or type(error).__name__}") from None
    if large:
        raise ValueError(
            f"{name} is larger than {MOST_PIXELS:,} pixels, or {MOST_SIDE:,} on a side; cut it into pieces"
        )
    if found.ndim == 3 and (found == found[..., :1]).all():
        found = found[..., 0]
    if found.ndim != 2 or not np.array_equal(found, found.astype(np.uint8)):
        raise ValueError(
            f"{name} is no mask: it has {1 if found.ndim == 2 else found.shape[2]} channels of {found.dtype}, and "
            "a mask has one number from 0 to 255 for each pixel"
        )
    return found.astype(np.uint8)
