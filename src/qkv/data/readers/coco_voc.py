"""Object detection data in COCO (one JSON file) and Pascal VOC (one XML file per image) format: images with boxes."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, NotRequired, TypeVar, cast
from xml.etree import ElementTree

from pydantic import FailFast, Field, TypeAdapter
from typing_extensions import TypedDict

from ...core.json_files import Id, checked
from ...core.spec import brief, counted
from ..files.inside import inside
from ..files.json_lines import json_file
from ..holdout import FileSource, HoldOutSource
from ..media.exif import DrawnOn
from ..media.image_files import SUFFIXES, stamp_of, unpacked_tar
from ..shuffle import text_hash
from ..source import SPLITS, Example, Split, Table

T = TypeVar("T")


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
    drawn_on: whether boxes are of the "stored" pixels of a picture that its EXIF data turn, and turn with it, or of the
    picture as it is "shown"; by default this follows from its <size>.
    """

    path: str | None = None
    train_list: str = "train"
    validation_list: str = "val"
    test_list: str = "test"
    difficult: bool = False
    drawn_on: DrawnOn | None = None

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("PIL",)

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

    def notes(self) -> tuple[str, ...]:
        return (*super().notes(), *_repeats(self))

    def open(self, split: Split) -> Table:
        return _opened(self.place, stamp_of(self.place)).table(
            getattr(self, f"{split}_list"), self.difficult, self.drawn_on
        )


class _VocFiles:
    """The content of a folder or archive in VOC's format."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._annotations: dict[str, Path | bytes] = {}
        self._images: dict[str, Path | bytes] = {}
        self.lists: dict[str, list[str]] = {}
        self._tables: dict[tuple[Hashable, ...], list[Example]] = {}
        for name, file in sorted(_contents(path).items()):
            parts = PurePosixPath(name)
            hidden = parts.name.startswith(".")
            if parts.parent.name == "Annotations" and parts.suffix.lower() == ".xml" and not hidden:
                self._add(self._annotations, parts, file)
            elif parts.parent.name == "JPEGImages" and parts.suffix.lower() in SUFFIXES and not hidden:
                self._add(self._images, parts, file)
            elif parts.match("ImageSets/Main/*.txt"):
                self._add(self.lists, parts, _listed(_bytes(file).decode("utf-8", "replace")))
        if not self._annotations:
            raise ValueError(f"{brief(path)} has no file Annotations/….xml; give a folder or .tar in VOC's format")

    def _add(self, files: dict[str, T], parts: PurePosixPath, content: T) -> None:
        """Add a file by its name without suffix. Raises ValueError if another file has the same name."""
        if parts.stem in files:
            raise ValueError(
                f"{brief(self._path)} has two files {parts.parent.name}/{parts.stem}, one of them {brief(str(parts))}; give "
                "one of the folders, or give the files different names"
            )
        files[parts.stem] = content

    def table(self, listed: str, difficult: bool, drawn_on: DrawnOn | None) -> list[Example]:
        key = (listed, difficult, drawn_on)
        if key not in self._tables:
            stems = self.lists.get(listed, sorted(self._annotations))
            examples = [self._example(stem, difficult, drawn_on) for stem in stems]
            self._tables[key] = _in_pixels(examples, str(self._path))
        return self._tables[key]

    def _example(self, stem: str, difficult: bool, drawn_on: DrawnOn | None) -> Example:
        where = f"{self._path}: {stem}"
        for files, what in ((self._annotations, "Annotations/{}.xml"), (self._images, "picture JPEGImages/{}")):
            if stem not in files:
                raise ValueError(f"{where}: there is no {what.format(stem)}")
        try:
            root = ElementTree.fromstring(_bytes(self._annotations[stem]))
            objects = [_voc_object(element) for element in root.iter("object")]
            height, width = (_voc_side(root, name) for name in ("height", "width"))
        except (ElementTree.ParseError, ValueError, LookupError) as error:  # LookupError: of an unknown encoding
            raise ValueError(f"{where}: Annotations/{stem}.xml can't be read: {error}") from None
        example = _empty(self._images[stem], where, (height, width), drawn_on)
        for name, box, hard in objects:
            _put(example, name, box, crowd=False, ignored=hard and not difficult)
        return example


def _listed(text: str) -> list[str]:
    """Read the names in a list of images. In a list for one class, each name is followed by 1, 0 or -1."""
    lines = [line.split() for line in text.splitlines()]
    if lines and all(len(words) == 2 and words[1] in ("1", "0", "-1") for words in lines if words):
        return [words[0] for words in lines if words]
    return text.split()


@lru_cache(maxsize=4)
def _opened(path: Path, stamp: tuple[int, int]) -> _VocFiles:
    if not path.exists():
        raise ValueError(f"there is no folder or file {brief(path)}")
    return _VocFiles(path)


def _named(example: Example) -> int:
    """A hash of an image's file name, without its folder."""
    return text_hash(example["where"].rpartition(": ")[2])


def _empty(
    image: Path | bytes, where: str, sides: tuple[float | None, float | None], drawn_on: DrawnOn | None
) -> Example:
    """A picture without objects; `sides` are the height and the width that its annotations state, 0 for unknown."""
    example: Example = {"image": image, "boxes": [], "names": [], "ignored": [], "where": where}
    about = {"annotated": sides if all(sides) else None, "drawn_on": drawn_on}
    return example | {name: value for name, value in about.items() if value is not None}


def _put(example: Example, name: str, box: list[float], *, crowd: bool, ignored: bool) -> None:
    """Add an object, as a target or (`ignored`) as one that an evaluation ignores."""
    if ignored:
        example["ignored"].append({"name": name, "box": box, "crowd": crowd})
    else:
        example["names"].append(name)
        example["boxes"].append(box)


def _in_pixels(examples: list[Example], where: str) -> list[Example]:
    """The examples. Raises ValueError if all boxes are fractions of their pictures, as other formats have them."""
    drawn = (one["boxes"] + [hidden["box"] for hidden in one["ignored"]] for one in examples)
    edges = [abs(edge) for boxes in drawn for box in boxes for edge in box]
    if edges and max(edges) <= 1:
        raise ValueError(
            f"{brief(where)}: no box has an edge beyond 1, as if they were fractions of the pictures; boxes are in pixels, "
            "so multiply them by the widths and heights"
        )
    return examples


def _repeats(source: HoldOutSource) -> Iterator[str]:
    """Yield a note on each split in which objects repeat the class and the box of another one in their picture."""
    for split in (split for split in SPLITS if split == "train" or source.gives(split)):
        again = {example["where"]: count for example in _read(source, split) if (count := _repeated(example))}
        if again:
            total = sum(again.values())
            yield (
                f"{counted(total, 'object')} of the {split} data {'repeats' if total == 1 else 'repeat'} the class and box "
                f"of another one, first in {next(iter(again))}; they count as objects, as in pycocotools: remove them if "
                "they are mistakes"
            )


def _read(source: HoldOutSource, split: Split) -> list[Example]:
    return cast("list[Example]", source.open(split))


def _repeated(example: Example) -> int:
    """The number of objects that are the same as another one. Crowds are not counted."""
    drawn = [(one["name"], *one["box"]) for one in example["ignored"] if not one["crowd"]]
    drawn += [(name, *box) for name, box in zip(example["names"], example["boxes"], strict=True)]
    return len(drawn) - len(set(drawn))


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
            f"the edges of {brief(name)} must be numbers of pixels, not {', '.join(map(repr, edges))}"
        ) from None


def _voc_side(root: ElementTree.Element, name: str) -> int:
    """The width or the height of the picture; 0 if the file doesn't say."""
    text = (root.findtext(f"size/{name}") or "0").strip()
    if not text.isdecimal():
        raise ValueError(f"the {name} of the picture must be a number of pixels, not {brief(text)}")
    return int(text)


# -- COCO --------------------------------------------------------------------------------------------------------------


class Coco(FileSource, kind="coco"):
    """A JSON file in the format of COCO (Lin et al. 2014): "images", "annotations" with "bbox" [left, top, width, height],
    and "categories".

    images: the folder with the image files; by default the folder of the JSON file. Files outside of it are not read.
    crowds: use an annotation marked as a crowd as one object; otherwise it is not a target, and an evaluation ignores
            detections in it, as COCO's own does.
    drawn_on: whether boxes are of the "stored" pixels of a picture that its EXIF data turn, and turn with it, or of the
            picture as it is "shown"; by default this follows from "width" and "height" of the image.
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
    drawn_on: DrawnOn | None = None

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("PIL",)

    def paths(self, split: Split) -> tuple[Path, ...]:
        name = self.split_setting("path", split)
        if name is None:
            if split == "train":
                raise ValueError("no data: give data.path, a JSON file in COCO's format, and data.images, a folder")
            return ()
        path = Path(name).expanduser()
        if not path.is_file():
            raise ValueError(f"there is no file {brief(name)}")
        return (path,)

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        return _named(example)

    def notes(self) -> tuple[str, ...]:
        return (*super().notes(), *_repeats(self))

    def open(self, split: Split) -> Table:
        (path,) = self.paths(split)
        images = self.split_setting("images", split) or self.images
        folder = Path(images).expanduser() if images else path.parent
        return list(_coco(path, stamp_of(path), folder, self.crowds, self.drawn_on))


_Number = Annotated[float, Field(allow_inf_nan=False)]


class _Image(TypedDict):
    id: Id
    file_name: str
    width: NotRequired[_Number | None]
    height: NotRequired[_Number | None]


class _Category(TypedDict):
    id: Id
    name: Id  # some files number their classes


class _Annotation(TypedDict):
    image_id: Id
    category_id: Id
    bbox: Annotated[list[_Number], Field(min_length=4, max_length=4)]
    iscrowd: NotRequired[Annotated[int, Field(strict=False, ge=0, le=1)] | None]


class _Coco(TypedDict):
    images: Annotated[list[_Image], FailFast()]
    annotations: Annotated[list[_Annotation], FailFast()]
    categories: Annotated[list[_Category], FailFast()]


_COCO = TypeAdapter(_Coco)


@lru_cache(maxsize=8)
def _coco(
    path: Path, stamp: tuple[int, int], folder: Path, crowds: bool, drawn_on: DrawnOn | None
) -> tuple[Example, ...]:
    content = checked(_COCO, json_file(path), f"{str(path)!r} is not in COCO's format")
    files = set[str]()
    for number, image in enumerate(content["images"]):
        if image["file_name"] in files:
            raise ValueError(
                f"{brief(path)}: images.{number} repeats the file_name {brief(image['file_name'])}, which would "
                "divide the objects of the picture; give its annotations the id of the first, and remove the second"
            )
        files.add(image["file_name"])
    names = _by_id(content["categories"], f"{str(path)!r}: categories")
    images = _by_id(content["images"], f"{str(path)!r}: images")
    examples = {
        key: _example(path, folder, image, f"{str(path)!r}: images.{number}", drawn_on)
        for number, (key, image) in enumerate(images.items())
    }
    for number, annotation in enumerate(content["annotations"]):
        image, category = annotation["image_id"], annotation["category_id"]
        for key, name, known in (("image_id", image, images), ("category_id", category, names)):
            if name not in known:
                raise ValueError(
                    f"{brief(path)}: annotations.{number} has the {key} {brief(name)}, which is not in the file"
                )
        left, top, width, height = annotation["bbox"]
        edges, crowd = [left, top, left + width, top + height], bool(annotation.get("iscrowd"))
        _put(examples[image], str(names[category]["name"]), edges, crowd=crowd, ignored=crowd and not crowds)
    _check_there(examples.values(), images.values(), path, folder)
    return tuple(_in_pixels(list(examples.values()), str(path)))


def _check_there(examples: Collection[Example], images: Collection[Any], path: Path, folder: Path) -> None:
    """Raises ValueError if none of the pictures of a file is in the folder."""
    if not examples or any(example["image"].is_file() for example in examples):
        return
    name = next(iter(images))["file_name"]
    above = inside(folder.parent, name, str(path)) if folder.parent != folder else folder
    advice = f"data.images={above.parents[name.replace(chr(92), '/').count('/')]}" if above.is_file() else ""
    raise ValueError(
        f"{brief(path)} names {counted(len(examples), 'picture')}, such as {brief(name)}, and {brief(folder)} has none of "
        f"these files; give the folder that has them: {advice or 'data.images=FOLDER'}"
    )


def _by_id(entries: Sequence[Any], where: str) -> dict[Any, Any]:
    """Entries by their ids. Raises ValueError if two have the same."""
    found: dict[Any, Any] = {}
    for number, entry in enumerate(entries):
        if entry["id"] in found:
            raise ValueError(
                f"{where}.{number} has the id {brief(entry['id'])} of an entry before it; each needs its own"
            )
        found[entry["id"]] = entry
    return found


def _example(path: Path, folder: Path, image: Any, where: str, drawn_on: DrawnOn | None) -> Example:
    """An image without its objects."""
    file = inside(folder, image["file_name"], f"{where}.file_name", "data.images=FOLDER names another")
    sides = image.get("height"), image.get("width")
    return _empty(file, f"{path}: {image['file_name']}", sides, drawn_on)
