"""Object detection data in COCO (one JSON file) and Pascal VOC (one XML file per image) format: images with boxes."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar
from xml.etree import ElementTree

from ...core.shuffle import text_hash
from ..files.json_lines import json_file
from ..holdout import FileSource, HoldOutSource
from ..media.image_files import stamp_of, unpacked_tar
from ..source import Example, Split, Table


def _contents(path: Path) -> dict[str, Path | bytes]:
    """The files below a folder or in a .tar, by name. Raises ValueError if an archive is damaged or too large."""
    if path.is_dir():
        return {file.relative_to(path).as_posix(): file for file in path.rglob("*") if file.is_file()}
    return {str(PurePosixPath(name)): data for name, data in unpacked_tar(path, lambda name: True).items()}


def _bytes(file: Path | bytes) -> bytes:
    return file if isinstance(file, bytes) else file.read_bytes()


# -- Pascal VOC --------------------------------------------------------------------------------------------------------


class Voc(HoldOutSource, kind="voc"):
    """A folder, or a .tar of one (.tar.xz, .tar.gz …), in the format of Pascal VOC (Everingham et al. 2010):
    `Annotations/7.xml` has the boxes of `JPEGImages/7.jpg`, `ImageSets/Main/train.txt` the names of a split's images.

    train_list, validation_list, test_list: the names of these lists. Without a list for training, all images are used;
    other splits without a list are held out of the training data.
    difficult: use objects marked as difficult like all others; otherwise they are not targets, and an evaluation ignores
    detections on them.
    """

    path: str | None = None
    train_list: str = "train"
    validation_list: str = "val"
    test_list: str = "test"
    difficult: bool = False

    @property
    def place(self) -> Path:
        if self.path is None:
            raise ValueError("no data: give data.path, a folder or .tar with Annotations and JPEGImages")
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
    """The content of a folder or archive in VOC's format."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._annotations: dict[str, Path | bytes] = {}
        self._images: dict[str, Path | bytes] = {}
        self.lists: dict[str, list[str]] = {}
        for name, file in sorted(_contents(path).items()):
            parts = PurePosixPath(name)
            if parts.parent.name == "Annotations" and parts.suffix == ".xml":
                self._annotations[parts.stem] = file
            elif parts.parent.name == "JPEGImages":
                self._images[parts.stem] = file
            elif parts.match("ImageSets/Main/*.txt"):
                self.lists[parts.stem] = _bytes(file).decode("utf-8", "replace").split()
        if not self._annotations:
            raise ValueError(f"{str(path)!r} has no file Annotations/….xml; give a folder or .tar in VOC's format")

    def table(self, listed: str, difficult: bool) -> list[Example]:
        return [self._example(stem, difficult) for stem in self.lists.get(listed, sorted(self._annotations))]

    def _example(self, stem: str, difficult: bool) -> Example:
        where = f"{self._path}: {stem}"
        for files, what in ((self._annotations, "Annotations/{}.xml"), (self._images, "picture JPEGImages/{}")):
            if stem not in files:
                raise ValueError(f"{where}: there is no {what.format(stem)}")
        try:
            root = ElementTree.fromstring(_bytes(self._annotations[stem]))
            objects = [_voc_object(element) for element in root.iter("object")]
        except (ElementTree.ParseError, ValueError) as error:
            raise ValueError(f"{where}: Annotations/{stem}.xml can't be read: {error}") from None
        example: Example = {"image": self._images[stem], "boxes": [], "names": [], "ignored": [], "where": where}
        for name, box, hard in objects:
            _put(example, name, box, crowd=False, ignored=hard and not difficult)
        return example


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


def _voc_object(element: ElementTree.Element) -> tuple[str, list[float], bool]:
    """The name and edges of an object, and whether it is marked as difficult."""
    name = (element.findtext("name") or "").strip()
    edges = [element.findtext(f"bndbox/{edge}") for edge in ("xmin", "ymin", "xmax", "ymax")]
    if not name or None in edges:
        raise ValueError("an object has no name, or not all of xmin, ymin, xmax and ymax")
    try:
        return name, [float(edge or "") for edge in edges], (element.findtext("difficult") or "").strip() == "1"
    except ValueError:
        raise ValueError(
            f"the edges of {name!r} must be numbers of pixels, not {', '.join(map(repr, edges))}"
        ) from None


# -- COCO --------------------------------------------------------------------------------------------------------------


class Coco(FileSource, kind="coco"):
    """A JSON file in the format of COCO (Lin et al. 2014): "images", "annotations" with "bbox" [left, top, width, height],
    and "categories".

    images: the folder with the image files; by default the folder of the JSON file.
    crowds: use an annotation marked as a crowd as one object; otherwise it is not a target, and an evaluation ignores
            detections in it, as COCO's own does.
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
        name = self.split_setting("path", split)
        if name is None:
            if split == "train":
                raise ValueError("no data: give data.path, a JSON file in COCO's format, and data.images, a folder")
            return ()
        path = Path(name).expanduser()
        if not path.is_file():
            raise ValueError(f"there is no file {name!r}")
        return (path,)

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        return _named(example)

    def open(self, split: Split) -> Table:
        (path,) = self.paths(split)
        images = self.split_setting("images", split) or self.images
        folder = Path(images).expanduser() if images else path.parent
        return list(_coco(path, stamp_of(path), folder, self.crowds))


@lru_cache(maxsize=8)
def _coco(path: Path, stamp: tuple[int, int], folder: Path, crowds: bool) -> tuple[Example, ...]:
    content = json_file(path)
    missing = [key for key in ("images", "annotations", "categories") if not isinstance(_get(content, key), list)]
    if missing:
        raise ValueError(f"{str(path)!r} is not in COCO's format: it has no list {missing[0]!r}")
    try:
        names = {category["id"]: str(category["name"]) for category in content["categories"]}
        files = {image["id"]: image["file_name"] for image in content["images"]}
        examples: dict[Any, Example] = {
            key: {"image": folder / file, "boxes": [], "names": [], "ignored": [], "where": f"{path}: {file}"}
            for key, file in files.items()
        }
    except (KeyError, TypeError) as error:
        raise ValueError(f"{str(path)!r}: an image or a category has no {error}") from None
    for number, annotation in enumerate(content["annotations"], 1):
        _add(annotation, examples, names, f"{str(path)!r}, annotation {number:,}", crowds)
    return tuple(examples.values())


def _add(annotation: Any, examples: dict[Any, Example], names: dict[Any, str], where: str, crowds: bool) -> None:
    """Add an annotation to the example of its image. Raises ValueError if its image or its category is unknown."""
    box = _get(annotation, "bbox")
    if not isinstance(box, list) or len(box) != 4 or not all(isinstance(edge, int | float) for edge in box):
        raise ValueError(f"{where} has no 'bbox' of four numbers, left, top, width and height")
    for key, known in (("image_id", examples), ("category_id", names)):
        if _get(annotation, key) not in known:
            raise ValueError(f"{where} has the {key} {_get(annotation, key)!r}, which is not in the file")
    left, top, width, height = box
    edges, crowd = [left, top, left + width, top + height], bool(annotation.get("iscrowd"))
    example, name = examples[annotation["image_id"]], names[annotation["category_id"]]
    _put(example, name, edges, crowd=crowd, ignored=crowd and not crowds)


def _get(record: Any, key: str) -> Any:
    return record.get(key) if isinstance(record, dict) else None
