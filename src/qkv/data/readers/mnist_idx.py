"""IDX files, the format of MNIST: images and their labels."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...core.spec import brief
from ..files.compressed import open_bytes
from ..media.image_files import stamp_of
from ..source import Split
from .images import ArrayStore, ImageSource, Store


class Idx(ImageSource, kind="idx"):
    """Gray images and their classes in IDX files, the format of MNIST (LeCun et al. 1998), plain or .gz.

    path: a folder with `train*images*` and `train*labels*`, and optionally `t10k…` or `test…`, and `val…`; or the file of
    the training images. `validation_path` and `test_path` are files of images. The name of the labels file has `labels` in
    place of `images`, and may have idx1 in place of idx3.
    """

    path: str | None = None
    validation_path: str | None = None
    test_path: str | None = None

    def store(self, split: Split) -> Store | None:
        name = self.split_setting("path", split)
        if name is None and split == "train":
            raise ValueError("no pictures are given: data.path=… is a folder of IDX files, or one of images")
        path = None if name is None else Path(name).expanduser()
        if path is None or path.is_dir():
            path = self._in_folder(split)
        return None if path is None else _idx(path.resolve(), stamp_of(path))

    def _in_folder(self, split: Split) -> Path | None:
        """The images file of a split in the folder."""
        folder = Path(self.path or "").expanduser()
        starts = {"train": ("train",), "validation": ("val",), "test": ("t10k", "test")}[split]
        files = sorted(file for start in starts for file in folder.glob(f"{start}*images*")) if folder.is_dir() else []
        if split == "train" and not files:
            raise ValueError(f"there is no file train*images* in {brief(folder)}")
        return files[0] if files else None


@lru_cache(maxsize=8)
def _idx(path: Path, stamp: tuple[int, int]) -> ArrayStore:
    images = _read_idx(path)
    if images.ndim != 3:
        raise ValueError(f"{brief(path)} has {images.ndim} axes; images have three")
    beside = [path.with_name(name) for name in _label_names(path.name)]
    file = next((file for file in beside if file.is_file()), None)
    if file is None:
        raise ValueError(f"{brief(path)} has no labels beside it; they are looked for in {beside[0].name}")
    labels = _read_idx(file)
    if labels.shape != images.shape[:1]:
        raise ValueError(f"{brief(path)} holds {len(images):,} images and {file.name} {len(labels):,} labels")
    return ArrayStore(str(path), images[:, None], list(map(str, labels.tolist())), None)


def _label_names(name: str) -> list[str]:
    other = name.replace("images", "labels").replace("idx3", "idx1")
    return [other, other.removesuffix(".gz"), f"{other}.gz"]


_MOST_AXES = 8


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """The array in an IDX file: 0, 0, the data type, the number of axes; their sizes, 32 bits each; the numbers."""
    data = open_bytes(path)
    if len(data) < 4 or bytes(data[:3]) != b"\0\0\x08":
        raise ValueError(
            f"{brief(path)} is not an IDX file of bytes: it begins with {bytes(data[:3]).hex()}, not 000008"
        )
    axes = data[3]
    if axes > _MOST_AXES:
        raise ValueError(f"{brief(path)} has {axes} axes by its header; images have three")
    if len(data) < 4 + 4 * axes:
        raise ValueError(f"{brief(path)} is truncated")
    shape = tuple(np.frombuffer(data, ">u4", axes, 4).astype(int).tolist())
    count = int(np.prod(shape, dtype=object))
    if count != len(data) - 4 - 4 * axes:
        raise ValueError(
            f"{brief(path)} has {' × '.join(map(str, shape))} bytes by its header, but holds {len(data) - 4 - 4 * axes:,}"
        )
    return np.frombuffer(data, np.uint8, count, 4 + 4 * axes).reshape(shape)
