"""Semantic segmentation data: a folder of images and a folder of masks with the same file names."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...core.optional_libraries import need
from ...core.spec import brief, counted
from ..holdout import FileSource
from ..media.exif import DrawnOn
from ..media.image_files import SUFFIXES, is_wanted
from ..media.images import MOST_PIXELS, MOST_SIDE, formats
from ..shuffle import text_hash
from ..source import SPLITS, Example, Split, Table

Mask = NDArray[np.uint8]  # (H, W)
_LOSSY = (".jpg", ".jpeg", ".jpe", ".jfif")


class Masks(FileSource, kind="masks"):
    """A folder with subfolders of images and of masks: `label/7.png` is the mask of `image/7.jpg`.

    Masks have one channel, or a palette: each number in them is a class, see `Segment`. Splits without their own folder
    are held out of the training data.

    images, masks: the names of the subfolders.
    classes: the class names, in the order of their numbers.
    drawn_on: whether masks are of the "stored" pixels of a picture that its EXIF data turn, and turn with it, or of the
    picture as it is "shown"; by default this follows from their height and width.
    """

    path: str | None = None
    validation_path: str | None = None
    test_path: str | None = None
    images: str = "image"
    masks: str = "label"
    classes: tuple[str, ...] = ()
    drawn_on: DrawnOn | None = None

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("PIL",)

    def paths(self, split: Split) -> tuple[Path, ...]:
        path = self.split_setting("path", split)
        if path is None:
            if split == "train":
                raise ValueError(
                    f"no data: give data.path, a folder with the subfolders {self.images} and {self.masks}"
                )
            return ()
        folder = Path(path).expanduser()
        return folder / self.images, folder / self.masks

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        return text_hash(example["image"].stem)

    def notes(self) -> tuple[str, ...]:
        masks = [path for split in SPLITS if self.gives(split) for path in _by_stem(self.paths(split)[1]).values()]
        lossy = [path for path in masks if path.suffix.lower() in _LOSSY]
        if not lossy:
            return super().notes()
        said = (
            f"{counted(len(lossy), 'mask')} of {len(masks):,} in JPEG format, such as {brief(lossy[0].name)}: its "
            "compression changes the classes of pixels; write masks as PNG"
        )
        return (said, *super().notes())

    def open(self, split: Split) -> Table:
        images, masks = (_by_stem(folder) for folder in self.paths(split))
        alone = sorted(images.keys() ^ masks.keys())
        if alone:
            first = images.get(alone[0]) or masks[alone[0]]
            missing = "mask" if alone[0] in images else "picture"
            raise ValueError(
                f"{brief(first)} has no {missing} of its name ({len(alone):,} such files); add or move them"
            )
        about = {} if self.drawn_on is None else {"drawn_on": self.drawn_on}
        return [
            {"image": images[stem], "mask": masks[stem], "where": str(images[stem]), **about}
            for stem in sorted(images, key=_natural)
        ]


def _by_stem(folder: Path) -> dict[str, Path]:
    """The images of a folder by file name without suffix."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {brief(folder)}; pictures and masks need their own folders")
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if is_wanted(path.name, SUFFIXES):
            if path.stem in files:
                raise ValueError(f"{brief(path)} and {brief(files[path.stem].name)} have one name; remove one of them")
            files[path.stem] = path
    if not files:
        raise ValueError(f"there is no picture in {brief(folder)}")
    return files


def _natural(stem: str) -> tuple[int, str]:
    """A sort key that puts 2 before 10."""
    return (int(stem) if stem.isdecimal() else -1, stem)


def read_mask(file: Path | bytes) -> Mask:
    """The numbers in a mask file, by its path or its bytes; 0 and 255 if it has one bit per pixel. It is turned by its EXIF
    data, as pictures are.

    Raises ValueError that names the file if it can't be read, or has more than one channel or byte per pixel.
    """
    need("reading a mask", "PIL")
    from PIL import Image, ImageOps

    name = "a mask" if isinstance(file, bytes) else repr(str(file))
    try:
        with Image.open(io.BytesIO(file) if isinstance(file, bytes) else file, formats=formats()) as image:
            large = image.width * image.height > MOST_PIXELS or max(image.size) > MOST_SIDE
            upright = image if large else ImageOps.exif_transpose(image)
            mask = np.empty(0) if large else np.asarray(upright.convert("L") if upright.mode == "1" else upright)
    except Exception as error:  # Pillow's decoders raise errors of many types
        raise ValueError(f"{name} can't be read as a mask: {error or type(error).__name__}") from None
    if large:
        raise ValueError(
            f"{name} is larger than {MOST_PIXELS:,} pixels, or {MOST_SIDE:,} on a side; cut it into pieces"
        )
    if mask.ndim == 3 and (mask == mask[..., :1]).all():
        mask = mask[..., 0]
    if mask.ndim != 2 or not np.array_equal(mask, mask.astype(np.uint8)):
        raise ValueError(
            f"{name} is no mask: it has {1 if mask.ndim == 2 else mask.shape[2]} channels of {mask.dtype}, and "
            "a mask has one number from 0 to 255 for each pixel"
        )
    return mask.astype(np.uint8)
