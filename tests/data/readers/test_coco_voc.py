from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from qkv.data.readers.coco_voc import Coco, Voc
from qkv.data.source import SPLITS

OBJECT = "<object><name>{}</name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox></object>"


def jpeg(shade: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (32, 24), (shade, shade, shade)).save(file, "JPEG")
    return file.getvalue()


def voc_files(count: int = 6, lists: bool = True) -> dict[str, bytes]:
    """Picture n has an object `cell` of n pixels, and odd ones a `plate` too."""
    files = {}
    for n in range(1, count + 1):
        objects = OBJECT.format("cell", 0, 0, n, 5) + (OBJECT.format(" plate ", 1, 2, 3, 4) if n % 2 else "")
        files[f"Annotations/p{n}.xml"] = f"<annotation>{objects}</annotation>".encode()
        files[f"JPEGImages/p{n}.jpg"] = jpeg(n)
    if lists:
        for name, numbers in (("train", (1, 2, 3)), ("val", (4, 5)), ("test", (6,))):
            files[f"ImageSets/Main/{name}.txt"] = "\n".join(f"p{n}" for n in numbers).encode()
    return files


def write(files: dict[str, bytes], at: Path, archive: str = "") -> Path:
    if not archive:
        for name, data in files.items():
            (at / "voc" / name).parent.mkdir(parents=True, exist_ok=True)
            (at / "voc" / name).write_bytes(data)
        return at / "voc"
    path = at / f"voc{archive}"
    with tarfile.open(path, {".tar": "w", ".tar.xz": "w:xz", ".tar.gz": "w:gz"}[archive]) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"./VOC2007/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("archive", ["", ".tar", ".tar.xz", ".tar.gz"])
def test_voc_from_a_folder_or_an_archive(archive: str, tmp_path: Path) -> None:
    source = Voc(path=str(write(voc_files(), tmp_path, archive)))
    examples = {split: list(source.examples(split, shuffle=False)) for split in SPLITS}
    assert [len(found) for found in examples.values()] == [3, 2, 1]
    first = examples["train"][0]
    assert first["names"] == ["cell", "plate"] and first["boxes"] == [[0, 0, 1, 5], [1, 2, 3, 4]]
    data = first["image"].read_bytes() if isinstance(first["image"], Path) else first["image"]
    assert data == jpeg(1) and first["where"].endswith("p1")


def test_voc_without_lists_holds_out(tmp_path: Path) -> None:
    source = Voc(path=str(write(voc_files(60, lists=False), tmp_path)))
    parts = [{one["where"] for one in source.examples(split)} for split in SPLITS]
    assert [len(part) for part in parts] == [48, 6, 6] and len(set.union(*parts)) == 60


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"JPEGImages/p2.jpg": None}, "p2: there is no picture JPEGImages/p2"),
        ({"Annotations/p2.xml": None}, r"p2: there is no Annotations/p2\.xml"),
        ({"Annotations/p2.xml": b"<annotation>"}, r"Annotations/p2\.xml can't be read"),
        ({"Annotations/p2.xml": b"<a><object><name>x</name></object></a>"}, "no name, or not all of xmin"),
        (
            {"Annotations/p2.xml": f"<a>{OBJECT.format('x', 'left', 1, 2, 3)}</a>".encode()},
            r"p2\.xml can't be read: the edges of 'x' must be numbers of pixels, not 'left'",
        ),
    ],
)
def test_broken_voc_is_told_by_file(change: dict[str, bytes | None], said: str, tmp_path: Path) -> None:
    files = {name: data for name, data in (voc_files() | change).items() if data is not None}
    with pytest.raises(ValueError, match=said):
        Voc(path=str(write(files, tmp_path))).table("train")


@pytest.mark.parametrize("twice", ["Annotations/p1.xml", "JPEGImages/p1.jpg", "ImageSets/Main/train.txt"])
@pytest.mark.parametrize("archive", ["", ".tar"])
def test_two_files_of_one_name_are_told(twice: str, archive: str, tmp_path: Path) -> None:
    """As in a folder of two years, of which only one was read."""
    files = voc_files()
    path = write({**files, f"other/{twice}": files[twice]}, tmp_path, archive)
    with pytest.raises(
        ValueError, match=f"has two files .*/{Path(twice).stem}, one of them .*; give one of the folders"
    ):
        Voc(path=str(path)).open("train")


def test_other_files_beside_pictures_and_lists_of_one_class(tmp_path: Path) -> None:
    listed = {
        "ImageSets/Main/cell_train.txt": b"p1  1\np2 -1\n",
        "JPEGImages/p1.txt": b"no picture",
        "JPEGImages/._p1.jpg": b"",
    }
    data = Voc(path=str(write(voc_files() | listed, tmp_path)), train_list="cell_train")
    table = data.open("train")
    assert [Path(str(one["image"])).name for one in table if isinstance(one, dict)] == ["p1.jpg", "p2.jpg"]


def test_a_place_without_voc_is_told(tmp_path: Path) -> None:
    (tmp_path / "torn.tar").write_bytes(b"no archive at all")
    for path, said in (
        (None, r"give data\.path"),
        ("x", "no folder or file"),
        ("", "no file Annotations"),
        ("torn.tar", "whole"),
    ):
        with pytest.raises(ValueError, match=said):
            Voc(path=None if path is None else str(tmp_path / path)).table("train")


def coco(**changes: Any) -> dict[str, Any]:
    return {
        "images": [{"id": n, "file_name": f"{n}.jpg", "width": 32, "height": 24} for n in (5, 9)],
        "annotations": [
            {"image_id": 9, "category_id": 3, "bbox": [1, 2, 10.5, 4]},
            {"image_id": 9, "category_id": 7, "bbox": [0, 0, 3, 3], "iscrowd": 1},
        ],
        "categories": [{"id": 3, "name": "dog"}, {"id": 7, "name": "cat"}],
        **changes,
    }


def with_pictures(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for n in (5, 9):
        (folder / f"{n}.jpg").write_bytes(jpeg(n))
    return folder


def test_coco_and_its_crowds(tmp_path: Path) -> None:
    pictures = with_pictures(tmp_path / "pictures")
    path = tmp_path / "train.json"
    path.write_text(json.dumps(coco()))
    given = {"path": str(path), "validation_path": str(path), "test_path": str(path), "images": str(pictures)}
    first, second = Coco(**given).table("train")
    assert first["boxes"] == [] and first["image"] == pictures / "5.jpg"
    assert second["names"] == ["dog"] and second["boxes"] == [[1, 2, 11.5, 6]]
    assert second["ignored"] == [{"name": "cat", "box": [0, 0, 3, 3], "crowd": True}]
    taken = Coco(**given, crowds=True).table("test")[1]
    assert taken["names"] == ["dog", "cat"] and taken["ignored"] == []


def test_objects_that_repeat_another_one_are_kept_and_told(tmp_path: Path) -> None:
    dog = {"image_id": 9, "category_id": 3, "bbox": [1, 2, 10.5, 4]}
    beside = [
        {**dog, "category_id": 7},
        {**dog, "bbox": [1, 2, 10.5, 5]},
        {**dog, "image_id": 5},
        {**dog, "iscrowd": 1},
    ]
    path, other = tmp_path / "train.json", tmp_path / "other.json"
    path.write_text(json.dumps(coco(annotations=[dog, dog, *beside, dog])))
    other.write_text(json.dumps(coco(annotations=[dog, *beside])))
    with_pictures(tmp_path)
    given = {"path": str(path), "validation_path": str(other), "test_path": str(path)}
    (train, test) = (note for note in Coco(**given).notes() if "repeat" in note)
    assert train.startswith("2 objects of the train data repeat the class and box of another one, first in")
    assert "9.jpg" in train and test.startswith("2 objects of the test data")
    assert Coco(**given).table("train")[1]["names"].count("dog") == 4  # with the one of another box

    files = voc_files()
    files["Annotations/p2.xml"] = f"<annotation>{OBJECT.format('cell', 0, 0, 1, 5) * 2}</annotation>".encode()
    (note,) = (note for note in Voc(path=str(write(files, tmp_path))).notes() if "repeat" in note)
    assert note.startswith("1 object of the train data repeats") and "p2;" in note


def test_a_coco_file_whose_pictures_are_elsewhere_says_so(tmp_path: Path) -> None:
    path = tmp_path / "boxes.json"
    images = [{"id": n, "file_name": f"pictures\\{n}.jpg", "width": 32, "height": 24} for n in (5, 9)]
    path.write_text(json.dumps(coco(images=images)))
    given = {"path": str(path), "validation_path": str(path), "test_path": str(path)}
    folder = with_pictures(tmp_path / "pictures")
    with pytest.raises(
        ValueError, match=r"names 2 pictures, such as 'pictures.*5\.jpg', and .* has none of these"
    ) as told:
        Coco(**given, images=str(folder)).table("train")
    advice = str(told.value).rpartition("data.images=")[2]
    assert advice == str(tmp_path)
    assert Coco(**given, images=advice).table("train")[0]["image"] == folder / "5.jpg"


def test_difficult_objects_of_voc_are_no_targets(tmp_path: Path) -> None:
    hard = OBJECT.replace("</object>", "<difficult>1</difficult></object>").format("plate", 1, 2, 9, 9)
    files = voc_files() | {
        "Annotations/p1.xml": f"<annotation>{OBJECT.format('cell', 0, 0, 1, 5)}{hard}</annotation>".encode()
    }
    path = str(write(files, tmp_path))
    one = Voc(path=path).table("train")[0]
    assert one["names"] == ["cell"] and one["ignored"] == [{"name": "plate", "box": [1, 2, 9, 9], "crowd": False}]
    assert Voc(path=path, difficult=True).table("train")[0]["names"] == ["cell", "plate"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"categories": None}, "not in COCO's format: categories should be a list, not None"),
        ({"images": [{"id": 1}]}, "has no 'file_name'"),
        ({"annotations": [{"image_id": 5, "category_id": 3}]}, r"annotations\.0 has no 'bbox'"),
        (
            {"annotations": [{"image_id": 5, "category_id": 3, "bbox": [1, 2, 3]}]},
            r"annotations\.0\.bbox should have at least 4 items, not 3",
        ),
        (
            {"images": [{"id": n, "file_name": "5.jpg"} for n in (5, 9)]},
            r"images\.1 repeats the file_name '5\.jpg'",
        ),
        (
            {"annotations": [{"image_id": 6, "category_id": 3, "bbox": [1, 2, 3, 4]}]},
            "image_id 6, which is not in",
        ),
        (
            {"annotations": [{"image_id": 5, "category_id": 4, "bbox": [1, 2, 3, 4]}]},
            "category_id 4, which is not in",
        ),
    ],
)
def test_broken_coco_is_told_by_annotation(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps(coco(**changes)))
    with pytest.raises(ValueError, match=said):
        Coco(path=str(path), validation_path=str(path), test_path=str(path)).table("train")


def test_boxes_in_fractions_of_the_picture_are_refused(tmp_path: Path) -> None:
    path = with_pictures(tmp_path) / "train.json"
    boxes = [{"image_id": n, "category_id": 3, "bbox": [0.5, 0.25, 0.125, 0.5]} for n in (5, 9)]
    for last, refused in (([0, 0, 1, 1], True), ([0, 0, 3, 1], False)):
        boxes[1]["bbox"] = last
        path.write_text(json.dumps(coco(annotations=boxes)))
        source = Coco(path=str(path), validation_path=str(path), test_path=str(path))
        if refused:
            with pytest.raises(ValueError, match="boxes are in pixels, so multiply them by the widths and heights"):
                source.table("train")
        else:
            assert len(source.table("train")) == 2
    files = voc_files(2, lists=False)
    for n in (1, 2):
        objects = OBJECT.format("cell", 0.1, 0, 0.5, 0.9)
        files[f"Annotations/p{n}.xml"] = f"<annotation>{objects}</annotation>".encode()
    with pytest.raises(ValueError, match="boxes are in pixels"):
        list(Voc(path=str(write(files, tmp_path))).examples("train"))


def test_no_json_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    for path, said in ((None, r"give data\.path"), ("b.json", "no file"), ("a.json", "not valid JSON")):
        with pytest.raises(ValueError, match=said):
            Coco(path=None if path is None else str(tmp_path / path), test_path="x", validation_path="x").table("train")
