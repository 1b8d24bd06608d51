"""Pictures that their EXIF data turn or mirror, and the boxes and masks that turn with them."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...core.optional_libraries import need
from .images import Size, formats

UPRIGHT = 1
SWAPPED = 5  # orientations from this on exchange height and width
ORIENTATION = 0x0112  # the tag, also of TIFF
DrawnOn = Literal["stored", "shown"]
"""Whether annotations were drawn on the stored pixels, or on the picture as its EXIF data turn it."""

Numbers = TypeVar("Numbers", bound=np.generic)


def orientation(file: bytes | Path) -> int:
    """How the EXIF data of a picture file, its bytes or its path, turn it, 1 … 8 as in `ImageOps.exif_transpose` of Pillow;
    1 is upright."""
    need("reading a picture", "PIL")
    from PIL import Image

    try:
        with Image.open(io.BytesIO(file) if isinstance(file, bytes) else file, formats=formats()) as image:
            number = image.getexif().get(ORIENTATION, UPRIGHT)
    except Exception:  # Pillow's decoders raise errors of many types; `decode` says what is wrong
        return UPRIGHT
    return number if number in range(UPRIGHT, 9) else UPRIGHT


def turned_boxes(boxes: NDArray[Any], orientation: int, size: Size) -> NDArray[np.float32]:
    """Boxes (n, 4) of left, top, right and bottom edges, drawn on the stored pixels, as boxes on the picture that is shown
    in this `size`."""
    height, width = stored_size(size, orientation)
    left, top, right, bottom = np.asarray(boxes, np.float32).reshape(-1, 4).T
    if orientation in (2, 3, 7, 8):
        left, right = width - right, width - left
    if orientation in (3, 4, 6, 7):
        top, bottom = height - bottom, height - top
    edges = (top, left, bottom, right) if orientation >= SWAPPED else (left, top, right, bottom)
    return np.stack(edges, 1)


def turned_mask(mask: NDArray[Numbers], orientation: int) -> NDArray[Numbers]:
    """A mask (H, W) of the stored pixels, for the picture that is shown."""
    if orientation in (2, 3, 7, 8):
        mask = mask[:, ::-1]
    if orientation in (3, 4, 6, 7):
        mask = mask[::-1]
    return np.ascontiguousarray(mask.T if orientation >= SWAPPED else mask)


def stored_size(size: Size, orientation: int) -> Size:
    """The size of the stored pixels of a picture that is shown in a size, and the other way round."""
    return size[::-1] if orientation >= SWAPPED else size


def turns_annotations(
    orientation: int, shown: Size, annotated: Size | None, drawn_on: DrawnOn | None, where: str
) -> bool:
    """Whether annotations turn with a picture, as they do if they were drawn on its stored pixels.

    shown:     the size of the picture as it is turned.
    annotated: the size that its annotations state, if they do.
    drawn_on:  what the user says; by default it follows from the sizes. If it can't, annotations are taken to be drawn on
               stored pixels, with a warning.

    Raises ValueError if the annotations state a size that the picture has neither stored nor turned.
    """
    stored = stored_size(shown, orientation)
    if annotated is not None and annotated not in (stored, shown):
        high, wide = annotated
        raise ValueError(
            f"{where}: its annotations are of a picture of {wide:g} × {high:g} pixels (width and height), and the file has "
            f"{stored[1]} × {stored[0]}; give the file that was annotated, or correct the annotations"
        )
    if orientation == UPRIGHT or drawn_on is not None:
        return orientation != UPRIGHT and drawn_on == "stored"
    if annotated is not None and stored != shown:
        return annotated == stored
    _warn_once(where)
    return True


_warned: set[str] = set()


def _warn_once(where: str) -> None:
    """Warn of the first such picture in a folder."""
    folder = where.rpartition("/")[0]
    if folder not in _warned:
        _warned.add(folder)
        warnings.warn(
            f"{where} is turned by its EXIF data, and its annotations don't say whether they were drawn on the stored "
            "pixels or on the picture as it is shown; they are taken to be of the stored pixels and turn with it "
            "(data.drawn_on=shown leaves them as they are, data.drawn_on=stored accepts this)",
            stacklevel=3,
        )
