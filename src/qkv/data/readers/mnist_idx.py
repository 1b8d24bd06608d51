"""IDX files, the format of MNIST: images and their labels."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..files.compressed import open_bytes
from ..media.image_files import stamp_of
from ..source import Split
from .images import ArrayStore, ImageSource, Store


class Idx(ImageSource, kind="idx"):
    """Gray pictures and their classes in IDX files, as MNIST comes (LeCun et al. 1998); .gz works.

    path: a folder with `train*images*` and `train*labels*`, and `t10k…` or `test…`, `val…` where there are such; or the
    file of the training images itself. `validation_path` and `test_path` are files of images. The file of the labels
    has `labels` in its name where that of the images has `images`, and may have idx1 where that has idx3.
    """

    path: str | None = None
    validation_path: str | None = None
    test_path: str | None = None

    def store(self, split: Split) -> Store | None:
        given = {"train": self.path, "validation": self.validation_path, "test": self.test_path}[split]
        if given is None and split == "train":
            raise ValueError("no pictures are given: data.path=… is a folder of IDX files, or one of images")
        path = None if given is None else Path(given).expanduser()
        if path is None or path.is_dir():
            path = self._found(split)
        return None if path is None else _idx(path.resolve(), stamp_of(path))

    def _found(self, split: Split) -> Path | None:
        """The file of a split in the folder."""
        folder = Path(self.path or "").expanduser()
        starts = {"train": ("train",), "validation": ("val",), "test": ("t10k", "test")}[split]
        found = sorted(f for start in starts for f in folder.glob(f"{start}*images*")) if folder.is_dir() else []
        if split == "train" and not found:
            raise ValueError(f"there is no file train*images* in {str(folder)!r}")
        return found[0] if found else None


@lru_cache(maxsize=8)
def _idx(path: Path, stamp: tuple[int, int]) -> ArrayStore:
    images = _read_idx(path)
    if images.ndim != 3:
        raise ValueError(f"{str(path)!r} holds {images.ndim} axes of numbers; images are of three")
    beside = [path.with_name(name) for name in _label_names(path.name)]
    found = next((file for file in beside if file.is_file()), None)
    if found is None:
        raise ValueError(f"{str(path)!r} has no labels beside it; they are looked for in {beside[0].name}")
    labels = _read_idx(found)
    if labels.shape != images.shape[:1]:
        raise ValueError(f"{str(path)!r} holds {len(images):,} images and {found.name} {len(labels):,} labels")
    return ArrayStore(str(path), images[:, None], list(map(str, labels.tolist())), None)


def _label_names(name: str) -> list[str]:
    other = name.replace("images", "labels").replace("idx3", "idx1")
    return [other, other.removesuffix(".gz"), f"{other}.gz"]


_MOST_AXES = 8


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """An array of an IDX file: 0, 0, the kind of number, how many axes; their sizes, 32 bits each; the numbers."""
    data = open_bytes(path)
    if len(data) < 4 or bytes(data[:3]) != b"\0\0\x08":
        raise ValueError(f"{str(path)!r} is no IDX file of bytes: it begins with {bytes(data[:3]).hex()}, not 000008")
    axes = data[3]
    if axes > _MOST_AXES:
        raise ValueError(f"{str(path)!r} is to have {axes} axes; images have three")
    if len(data) < 4 + 4 * axes:
        raise ValueError(f"{str(path)!r} is truncated")
    shape = tuple(np.frombuffer(data, ">u4", axes, 4).astype(int).tolist())
    count = int(np.prod(shape, dtype=object))
    if count != len(data) - 4 - 4 * axes:
        raise ValueError(
            f"{str(path)!r} is to hold {' × '.join(map(str, shape))} bytes and holds {len(data) - 4 - 4 * axes:,}"
        )
    return np.frombuffer(data, np.uint8, count, 4 + 4 * axes).reshape(shape)
