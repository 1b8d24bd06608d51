"""Image classification data: folders named after their classes, archives of them, or a CSV or TSV list of images."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ..files.csv_dialect import Separator
from ..files.records import Column, RecordFormat
from ..holdout import MOST, SHARE
from ..media.image_files import SUFFIXES, Files, open_image_files, stamp_of
from ..media.images import MOST_PIXELS, Color, Pixels, decode, depth
from ..shuffle import text_hash
from ..source import SPLITS, Example, OnError, Skipped, Source, Split

_SAMPLED = 16  # files inspected to detect the bit depth of gray images
Indices = NDArray[np.int64]
Decode = Callable[..., Pixels | Skipped]


class Store(Hashable, Protocol):
    """Decoded images by number. `where` names the folder or data set."""

    where: str
    names: Sequence[str]
    notes: tuple[str, ...]

    def label(self, i: int) -> str | None: ...

    def split(self, i: int) -> Split | None: ...

    def pixels(self, i: int) -> Pixels | Skipped: ...


class ImageTable:
    """Images of a store: `{"image": (C, H, W) of uint8, "where": …}`, and a `"label"` if there is one.

    `labels` are available without decoding. `name` is the key of the image, "video" for videos.
    """

    def __init__(self, store: Store, which: Indices, name: str = "image") -> None:
        self._store, self._which, self._name = store, which, name

    @property
    def labels(self) -> list[str | None]:
        return [self._store.label(i) for i in self._which.tolist()]

    def __len__(self) -> int:
        return len(self._which)

    def __getitem__(self, i: int) -> Example | Skipped:
        number = int(self._which[i])
        pixels = self._store.pixels(number)
        if isinstance(pixels, Skipped):
            return Skipped(pixels, self._store.names[number])
        example: Example = {self._name: pixels, "where": f"{self._store.where}, {self._store.names[number]}"}
        label = self._store.label(number)
        return example if label is None else {**example, "label": label}


class ImageSource(Source):
    """A source of images. Without data for validation or test, training images are held out: about 2 % each, at most
    about 1,000. They have the smallest hashes of their names, so the choice never changes.
    """

    @abstractmethod
    def store(self, split: Split) -> Store | None:
        """The images that the user provided for a split, or None. Raises ValueError if they can't be read."""

    @property
    def fixed(self) -> bool:
        return True

    @property
    def holds(self) -> str:
        """The key of the image or video in an example."""
        return "image"

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> ImageTable:
        own = self.store(split)
        if split != "train" and own is not None:
            return ImageTable(own, _own(own, split), self.holds)
        return ImageTable(self._training, _split_up(self._training, self._missing)[split], self.holds)

    @property
    def _training(self) -> Store:
        store = self.store("train")
        assert store is not None
        return store

    @property
    def _missing(self) -> tuple[Split, ...]:
        """Training, and the splits that are held out of the training images."""
        return tuple(split for split in SPLITS if split == "train" or self.store(split) is None)

    def notes(self) -> tuple[str, ...]:
        store = self._training
        members = _split_up(store, self._missing)
        held = [split for split in self._missing if split != "train" and split not in _named_splits(store)]
        if not held:
            return store.notes
        counts = " and ".join(f"{len(members[split]):,} for {split}" for split in held)
        return (*store.notes, f"held out of the training pictures by hash: {counts}")


def _mixed(store: Store, which: Iterable[int]) -> Indices:
    """Sort images by their hash, so the first ones are from all classes."""
    return np.array(sorted(which, key=lambda i: text_hash(store.names[i])), np.int64)


@lru_cache(maxsize=16)
def _own(store: Store, split: Split) -> Indices:
    """The images of a split in its own store: all of them, if no folder names a split."""
    return _mixed(store, (i for i in range(len(store.names)) if store.split(i) in (None, split)))


@lru_cache(maxsize=16)
def _named_splits(store: Store) -> frozenset[Split]:
    """The splits named by the folders of a store."""
    return frozenset(split for i in range(len(store.names)) if (split := store.split(i)) is not None)


@lru_cache(maxsize=16)
def _split_up(store: Store, splits: tuple[Split, ...]) -> dict[Split, Indices]:
    """The images of each of these splits, by their folders or else by hash."""
    named = [store.split(i) or "train" for i in range(len(store.names))]
    members = {split: _mixed(store, (i for i, name in enumerate(named) if name == split)) for split in splits}
    lacking = [split for split in splits if split != "train" and not len(members[split])]
    train = members["train"]
    each = max(1, min(len(train) // SHARE, MOST))
    if len(train) <= each * len(lacking):
        raise ValueError(
            f"{store.where}: only {len(train)} picture(s) to train on there; that is too few to hold out some for "
            f"{' and '.join(lacking) or 'anything'}, so give data for these"
        )
    for n, split in enumerate(lacking):
        members[split] = train[n * each : (n + 1) * each]
    members["train"] = train[len(lacking) * each :]
    return members


# -- files -------------------------------------------------------------------------------------------------------------


class ImageFiles(ImageSource):
    """Image or video files in folders, archives or tables.

    header: whether the first line of a table holds column names; by default detected. `sep`: the character between its
            cells, such as ";", or its name; by default detected.
    missing: texts in a table that stand for no class; by default as in pandas, such as "nan", "NA" and "None".
    on_error: for a row of a table that has more cells than columns: "raise" an error, or "skip" and count it.
    bits: how many bits 16-bit gray files use, 8, 12 or 16; by default detected from some training files.
    """

    path: str | None = None
    validation_path: str | None = None
    test_path: str | None = None
    header: bool | None = None
    sep: Separator | None = None
    missing: tuple[str, ...] | None = None
    on_error: OnError = "raise"
    color: Color = "rgb"
    bits: int | None = Field(default=None, ge=8, le=16)
    most_pixels: int = Field(default=MOST_PIXELS, ge=1)
    cache: int = Field(default=256, ge=0)

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("PIL",)

    @property
    def columns(self) -> tuple[Column | None, Column | None]:
        """The columns of a table with the images and the classes."""
        return None, None

    @property
    def listed_in(self) -> Path | None:
        """The folder of the files that a table names; None for that of the table."""
        return None

    @property
    def reading(self) -> RecordFormat:
        """How a table is read."""
        return RecordFormat(header=self.header, sep=self.sep, strict=self.on_error == "raise", missing=self.missing)

    @property
    def suffixes(self) -> frozenset[str]:
        """The endings of the names of files that are read."""
        return SUFFIXES

    @property
    def decode(self) -> Decode:
        return decode

    @property
    def depth(self) -> int:
        """How many bits 16-bit gray files use."""
        return self.bits or _depth(self._files(self.path)) or 16

    def notes(self) -> tuple[str, ...]:
        bits = None if self.bits else _depth(self._files(self.path))
        note = (
            f"gray pictures of 16 bits a pixel use {bits}, and are read as of {bits} (data.bits=16 reads them as of 16)"
        )
        return (*super().notes(), *((note,) if bits and bits < 16 else ()))

    def store(self, split: Split) -> Store | None:
        name = self.split_setting("path", split)
        if name is None and split != "train":
            return None
        return decoded(self._files(name), str(name), self.color, self.most_pixels, self.depth, self.cache, self.decode)

    def _files(self, name: str | None) -> Files:
        if name is None:
            raise ValueError(f"no {self.holds}s are given: data.path=… is a folder of them, an archive, or a table")
        path = Path(name).expanduser().resolve()
        return open_image_files(path, stamp_of(path), self.columns, self.suffixes, self.listed_in, self.reading)


class Images(ImageFiles, kind="images"):
    """Image files in folders named after their classes: `cat/1.jpg`, or `train/cat/1.jpg` beside `test/cat/7.jpg`.

    path:       a folder, an archive of one (.zip, .tar, .tar.gz, .tar.xz …), or a CSV or TSV file with images and classes;
                `validation_path` and `test_path` the same for these splits.
    color:      "rgb" or "gray", to which every image is converted.
    image_column, label_column: of a CSV or TSV file, see `image_files.Listed`.
    images:     the folder of the images that a CSV or TSV file names; by default that of the file. Others are not read.
    most_pixels: larger images are skipped before they are decoded.
    cache:      MiB of memory for decoded images, in each process that reads.

    Images that can't be read are skipped and counted.
    """

    path_fields: ClassVar[tuple[str, ...]] = ("path", "validation_path", "test_path", "images")

    image_column: Column | None = None
    label_column: Column | None = None
    images: str | None = None

    @property
    def columns(self) -> tuple[Column | None, Column | None]:
        return self.image_column, self.label_column

    @property
    def listed_in(self) -> Path | None:
        return None if self.images is None else Path(self.images).expanduser()


@lru_cache(maxsize=16)
def _depth(files: Files) -> int | None:
    """How many bits 16-bit gray files use, detected from a sample."""
    count = len(files.names)
    some = (files.read(i) for i in range(0, count, max(1, count // _SAMPLED)))
    return depth(data for data in some if not isinstance(data, Skipped))


class _Decoded:
    """Images in files; decoded images are cached up to a budget of bytes."""

    def __init__(self, files: Files, where: str, read: Decode, budget: int) -> None:
        self.where, self.names, self.notes = where, files.names, files.notes
        self._files, self._read, self._left = files, read, budget
        self._cache: dict[int, Pixels] = {}

    def label(self, i: int) -> str | None:
        return self._files.label(i)

    def split(self, i: int) -> Split | None:
        return self._files.split(i)

    def pixels(self, i: int) -> Pixels | Skipped:
        if i in self._cache:
            return self._cache[i]
        data = self._files.read(i)
        pixels = data if isinstance(data, Skipped) else self._read(data, where=f"{self.where}/{self.names[i]}")
        if not isinstance(pixels, Skipped) and pixels.nbytes <= self._left:
            self._left -= pixels.nbytes
            self._cache[i] = pixels
        return pixels


@lru_cache(maxsize=8)
def decoded(files: Files, where: str, color: Color, most: int, bits: int, cache: int, decode: Decode) -> Store:
    """The contents of files, decoded by `decode(bytes, color, most pixels, bits, where)` and cached up to `cache` MiB."""
    return _Decoded(files, where, partial(decode, color=color, most=most, bits=bits), cache << 20)


# -- arrays ------------------------------------------------------------------------------------------------------------


class ArrayStore:
    """Images in an array (N, C, H, W), numbered from 0."""

    notes: tuple[str, ...] = ()

    def __init__(self, where: str, images: Pixels, labels: Sequence[str], splits: Sequence[Split] | None) -> None:
        self.where = where
        self.names: Sequence[str] = [f"picture {i:,}" for i in range(len(images))]
        self._images, self._labels, self._splits = images, labels, splits

    def label(self, i: int) -> str | None:
        return self._labels[i]

    def split(self, i: int) -> Split | None:
        return None if self._splits is None else self._splits[i]

    def pixels(self, i: int) -> Pixels:
        return self._images[i]
