"""Object detection data in COCO (one JSON file) and Pascal VOC (one XML file per image) format: images with boxes."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Hashable, Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Protocol
from xml.etree import ElementTree

from ...core.shuffle import text_hash
from ..files.compressed import open_bytes
from ..holdout import FileSource, HoldOutSource
from ..media.image_files import stamp_of
from ..source import Example, Split, Table

_MOST = 1 << 30  # bytes of a compressed archive's files, which are kept in memory


class Files(Protocol):
    """Files by their names."""

    def names(self) -> Iterator[str]: ...

    def read(self, name: str) -> bytes: ...


class Folder:
    """The files below a folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> Iterator[str]:
        return (path.relative_to(self._path).as_posix() for path in self._path.rglob("*") if path.is_file())

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()


class Archive:
    """The files of a .tar, compressed or not, in memory. Raises ValueError where it is broken, or too large for that."""

    def __init__(self, path: Path) -> None:
        self._files: dict[str, bytes] = {}
        size = 0
        try:
            with tarfile.open(path) as archive:
                for member in archive:
                    if member.isfile():
                        size += member.size
                        if size > _MOST:
                            raise ValueError(f"{str(path)!r} holds more than {_MOST >> 30} GiB; unpack it")
                        self._files[str(PurePosixPath(member.name))] = archive.extractfile(member).read()  # type: ignore[union-attr]
        except (tarfile.TarError, EOFError, OSError) as error:
            raise ValueError(f"{str(path)!r} is not a whole archive ({error})") from None

    def names(self) -> Iterator[str]:
        return iter(self._files)

    def read(self, name: str) -> bytes:
        return self._files[name]


# -- Pascal VOC --------------------------------------------------------------------------------------------------------


class Voc(HoldOutSource, kind="voc"):
    """A folder, or a .tar of one (.tar.xz, .tar.gz …), in the form of Pascal VOC (Everingham et al. 2010):
    `Annotations/7.xml` has the boxes of `JPEGImages/7.jpg`, `ImageSets/Main/train.txt` the names of a split's pictures.

    train_list, validation_list, test_list: these files' names. Without one for training it is all pictures; other splits
    that have none are held out of the training data.
    difficult: take objects marked as difficult like any others; else they are no targets, and an evaluation ignores what
    is found on them.
    """

    path: str | None = None
    train_list: str = "train"
    validation_list: str = "val"
    test_list: str = "test"
    difficult: bool = False

    @property
    def place(self) -> Path:
        if self.path is None:
            raise ValueError("no data: give data.path, a folder or .tar with Annotations and JPEGImages in it")
        return Path(self.path).expanduser()

    def stamp(self) -> tuple[Hashable, ...]:
        return str(self.place), *stamp_of(self.place)

    def gives(self, split: Split) -> bool:
        return getattr(self, f"{split}_list") in _opened(self.place, stamp_of(self.place)).lists

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        return _named(example)

    def open(self, split: Split) -> Table:
        return _opened(self.place, stamp_of(self.place)).table(getattr(self, f"{split}_list"), self.difficult)


class _VocFiles:
    """What a folder or archive of VOC's form holds."""

    def __init__(self, path: Path) -> None:
        self._path, self._files = path, Folder(path) if path.is_dir() else Archive(path)
        self._annotations: dict[str, str] = {}
        self._pictures: dict[str, str] = {}
        lists: dict[str, str] = {}
        for name in sorted(self._files.names()):
            parts = PurePosixPath(name)
            if parts.parent.name == "Annotations" and parts.suffix == ".xml":
                self._annotations[parts.stem] = name
            elif parts.parent.name == "JPEGImages":
                self._pictures[parts.stem] = name
            elif parts.match("ImageSets/Main/*.txt"):
                lists[parts.stem] = name
        self.lists = {stem: self._files.read(name).decode("utf-8", "replace").split() for stem, name in lists.items()}
        if not self._annotations:
            raise ValueError(f"{str(path)!r} has no file Annotations/….xml; give a folder or .tar in VOC's form")

    def table(self, listed: str, difficult: bool) -> list[Example]:
        wanted = self.lists.get(listed, sorted(self._annotations))
        return [self._example(stem, difficult) for stem in wanted]

    def _example(self, stem: str, difficult: bool) -> Example:
        where = f"{self._path}: {stem}"
        for files, what in ((self._annotations, "Annotations/{}.xml"), (self._pictures, "picture JPEGImages/{}")):
            if stem not in files:
                raise ValueError(f"{where}: there is no {what.format(stem)}")
        try:
            root = ElementTree.fromstring(self._files.read(self._annotations[stem]))
            objects = [_voc_object(one) for one in root.iter("object")]
        except (ElementTree.ParseError, ValueError) as error:
            raise ValueError(f"{where}: Annotations/{stem}.xml can't be read: {error}") from None
        image = self._pictures[stem]
        data = self._path / image if isinstance(self._files, Folder) else self._files.read(image)
        made: Example = {"image": data, "boxes": [], "names": [], "ignored": [], "where": where}
        for name, box, hard in objects:
            _put(made, name, box, crowd=False, ignored=hard and not difficult)
        return made


@lru_cache(maxsize=4)
def _opened(path: Path, stamp: tuple[int, int]) -> _VocFiles:
    if not path.exists():
        raise ValueError(f"there is no folder or file {str(path)!r}")
    return _VocFiles(path)


def _named(example: Example) -> int:
    """A hash of an image's file name, without its folder."""
    return text_hash(example["where"].rpartition(": ")[2])


def _put(example: Example, name: str, box: list[float], *, crowd: bool, ignored: bool) -> None:
    """Add an object, as a target or (`ignored`) as one that an evaluation ignores."""
    if ignored:
        example["ignored"].append({"name": name, "box": box, "crowd": crowd})
    else:
        example["names"].append(name)
        example["boxes"].append(box)


def _voc_object(one: ElementTree.Element) -> tuple[str, list[float], bool]:
    """Its name, its edges, and whether it is marked as difficult."""
    name = (one.findtext("name") or "").strip()
    edges = [one.findtext(f"bndbox/{edge}") for edge in ("xmin", "ymin", "xmax", "ymax")]
    if not name or None in edges:
        raise ValueError("an object has no name, or not all of xmin, ymin, xmax and ymax")
    try:
        return name, [float(edge or "") for edge in edges], (one.findtext("difficult") or "").strip() == "1"
    except ValueError:
        raise ValueError(f"the edges of {name!r} are numbers of pixels, not {', '.join(map(repr, edges))}") from None


# -- COCO --------------------------------------------------------------------------------------------------------------


class Coco(FileSource, kind="coco"):
    """A JSON file in the form of COCO (Lin et al. 2014): "images", "annotations" with "bbox" [left, top, width, height],
    and "categories".

    images: the folder that the files are in; that of the JSON file by default.
    crowds: take what is marked as a crowd as one object; else it is no target, and an evaluation ignores what is found in
            it, as COCO's own does.
    """

    path_fields: ClassVar[tuple[str, ...]] = tuple(
        f"{split}{name}" for split in ("", "validation_", "test_") for name in ("path", "images")
    )

    path: str | None = None
    validation_path: str | None = None
    test_path: str | None = None
    images: str | None = None
    validation_images: str | None = None
    test_images: str | None = None
    crowds: bool = False

    def paths(self, split: Split) -> tuple[Path, ...]:
        given = self.path if split == "train" else getattr(self, f"{split}_path")
        if given is None:
            if split == "train":
                raise ValueError("no data: give data.path, a JSON file in COCO's form, and data.images, a folder")
            return ()
        path = Path(given).expanduser()
        if not path.is_file():
            raise ValueError(f"there is no file {given!r}")
        return (path,)

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        return _named(example)

    def open(self, split: Split) -> Table:
        (path,) = self.paths(split)
        folder = (self.images if split == "train" else getattr(self, f"{split}_images")) or self.images
        at = Path(folder).expanduser() if folder else path.parent
        return list(_coco(path, stamp_of(path), at, self.crowds))


@lru_cache(maxsize=8)
def _coco(path: Path, stamp: tuple[int, int], folder: Path, crowds: bool) -> tuple[Example, ...]:
    try:
        whole = json.loads(bytes(open_bytes(path)))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is not valid JSON: {error}") from None
    missing = [key for key in ("images", "annotations", "categories") if not isinstance(_get(whole, key), list)]
    if missing:
        raise ValueError(f"{str(path)!r} is not in COCO's form: it has no list {missing[0]!r}")
    try:
        names = {one["id"]: str(one["name"]) for one in whole["categories"]}
        made = {
            one["id"]: {
                "image": folder / one["file_name"],
                "boxes": [],
                "names": [],
                "ignored": [],
                "where": f"{path}: {one['file_name']}",
            }
            for one in whole["images"]
        }
    except (KeyError, TypeError) as error:
        raise ValueError(f"{str(path)!r}: an image or a category has no {error}") from None
    for number, one in enumerate(whole["annotations"], 1):
        _add(one, made, names, f"{str(path)!r}, annotation {number:,}", crowds)
    return tuple(made.values())


def _add(one: Any, made: dict[Any, Example], names: dict[Any, str], where: str, crowds: bool) -> None:
    """One annotation to the picture that it is of. Raises ValueError where it isn't of one, or of no category."""
    box = _get(one, "bbox")
    if not isinstance(box, list) or len(box) != 4 or not all(isinstance(edge, int | float) for edge in box):
        raise ValueError(f"{where} has no 'bbox' of four numbers, left, top, width and height")
    for key, known in (("image_id", made), ("category_id", names)):
        if _get(one, key) not in known:
            raise ValueError(f"{where} has the {key} {_get(one, key)!r}, which is none in the file")
    left, top, width, height = box
    edges, crowd = [left, top, left + width, top + height], bool(one.get("iscrowd"))
    _put(made[one["image_id"]], names[one["category_id"]], edges, crowd=crowd, ignored=crowd and not crowds)


def _get(found: Any, key: str) -> Any:
    return found.get(key) if isinstance(found, dict) else None
