"""Folders and archives: which files are listed, which are opened, and which kind of data they are."""

from __future__ import annotations

import json
import tarfile
import zipfile
from itertools import pairwise
from pathlib import Path, PurePosixPath

import pytest
from PIL import Image

from qkv.data.files.records import RecordFormat
from qkv.runs.recipes.guess import Guess, guess
from qkv.runs.recipes.guess.folders import Listing, _classes, _names, _nested, is_archive, of_folder
from qkv.runs.recipes.recipe import Recipe


def coco(root: Path, *names: str, width: int = 32) -> None:
    """Files in COCO's format, each with two pictures in its folder."""
    for name in names:
        folder = (root / name).parent
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(2):
            Image.new("RGB", (width, 32)).save(folder / f"{i}.png")
        images = [{"id": i, "file_name": f"{i}.png", "width": width, "height": 32} for i in range(2)]
        boxes = [{"id": i, "image_id": i, "category_id": 1, "bbox": [2, 3, 9, 8]} for i in range(2)]
        categories = [{"id": 1, "name": "cell"}]
        (root / name).write_text(json.dumps({"images": images, "annotations": boxes, "categories": categories}))


def test_coco_files_that_are_not_read_are_told(tmp_path: Path) -> None:
    coco(tmp_path, *(f"{name}.json" for name in "abcdefgh"))
    found = of_folder(tmp_path, RecordFormat())
    assert isinstance(found, Guess) and f"data.path={tmp_path / 'a.json'}" in found.settings
    said = "7 other files in COCO's format are not read (b.json, c.json, d.json …); data.path chooses"
    assert said in found.seen


@pytest.mark.parametrize(
    "names",
    [
        ("test/_annotations.coco.json", "train/_annotations.coco.json", "valid/_annotations.coco.json"),
        ("test/boxes_test2017.json", "train/boxes_train2017.json", "val/boxes_val2017.json"),
    ],
)
def test_a_coco_file_for_each_split_is_read_as_that_split(tmp_path: Path, names: tuple[str, ...]) -> None:
    coco(tmp_path, *names)
    found = of_folder(tmp_path, RecordFormat())
    assert isinstance(found, Guess) and not any("not read" in said for said in found.seen)
    for prefix, name in zip(("test_", "", "validation_"), names, strict=True):
        assert f"data.{prefix}path={tmp_path / name}" in found.settings
        assert f"data.{prefix}images={(tmp_path / name).parent}" in found.settings


@pytest.mark.parametrize("splits", [("train", "validation"), ()])
def test_what_the_library_datasets_saved_is_read_by_it(tmp_path: Path, splits: tuple[str, ...]) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"review": datasets.Value("string"), "stars": datasets.ClassLabel(names=["bad", "good"])}
    )
    one = datasets.Dataset.from_dict({"review": [f"a {i}" for i in range(60)], "stars": [0, 1] * 30}, features)
    (datasets.DatasetDict(dict.fromkeys(splits, one)) if splits else one).save_to_disk(tmp_path / "saved")
    found = guess(tmp_path / "saved")
    assert found.recipe == "classify" and "data.kind=datasets" in found.settings
    example = next(Recipe.load(found.recipe, found.settings).data.examples("train"))
    assert example["label"] == ("bad", "good")[int(example["text"].split()[1]) % 2]
    alone = datasets.Dataset.from_dict({"a": [1], "b": [2.5]})
    alone.save_to_disk(tmp_path / "numbers")
    with pytest.raises(ValueError, match=r"datasets saved; its columns are a, b; data\.kind=datasets data\.path="):
        guess(tmp_path / "numbers")


def folder_of(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def archives(folder: Path) -> list[Path]:
    """The same files as a tar and as a zip."""
    tar, zipped = folder.parent / "x.tar", folder.parent / "x.zip"
    with tarfile.open(tar, "w") as archive:
        archive.add(folder, ".")
    with zipfile.ZipFile(zipped, "w") as file:
        file.mkdir("b")
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(folder))
    return [tar, zipped]


def test_a_folder_and_its_archives_list_the_same_files(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "all", "b/2.txt", "a.txt", "b/1.TXT", "b/c/3.md")
    names = [PurePosixPath(name) for name in ("a.txt", "b/1.TXT", "b/2.txt", "b/c/3.md")]
    assert list(_names(folder)) == names
    for archive in archives(folder):
        assert sorted(_names(archive)) == names and is_archive(archive)
        contents = Listing(archive, tuple(names)).opened(names[1:3])
        assert [content.decode() for content in contents] == ["b/1.TXT", "b/2.txt"]
    assert not is_archive(folder)
    assert Listing(folder, tuple(names)).having((".txt",)) == names[:3]


def test_hidden_files_and_what_systems_leave_are_left_out(tmp_path: Path) -> None:
    left = (".DS_Store", ".git/x.txt", "a/.y.txt", "a/._z.txt", "__MACOSX/a/._z.txt", "a/Thumbs.db", "desktop.ini")
    folder = folder_of(tmp_path / "all", *left, "a/z.txt")
    assert list(_names(folder)) == [PurePosixPath("a/z.txt")]
    for archive in archives(folder):
        assert list(_names(archive)) == [PurePosixPath("a/z.txt")], archive


def test_classes_are_the_folders_of_all_files() -> None:
    paths = [PurePosixPath(name) for name in ("train/cat/1.png", "train/cat/2.png", "test/dog/1.png")]
    assert dict(_classes(paths)) == {"cat": 2, "dog": 1}
    assert not _classes(paths[:2])  # one class is none
    assert not _classes([*paths, PurePosixPath("5.png")])  # a file without a class
    assert not _classes([PurePosixPath("train/1.png"), PurePosixPath("test/2.png")])  # splits are no classes


def test_files_to_look_into_are_spread_over_a_folder(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "all", *(f"{i:03}.txt" for i in range(200)))
    listing = Listing(folder, tuple(_names(folder)))
    seen = [content.decode() for content in listing.opened(list(listing.names))]
    assert seen[0] == "000.txt" and len(seen) < 100
    assert {int(b[:3]) - int(a[:3]) for a, b in pairwise(seen)} == {200 // len(seen)}


def test_a_folder_of_nothing_known_names_its_commonest_suffixes(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "all", "1.xyz", "2.XYZ", "3.abc", "README")
    assert of_folder(folder, RecordFormat()) == "it holds 2 × .xyz, 1 × .abc, 1 × no suffix"


@pytest.mark.parametrize("suffix", ["png", "wav"])
def test_files_beside_the_folders_of_classes_are_told(suffix: str, tmp_path: Path) -> None:
    names = [f"{kind}/{i}.{suffix}" for kind in ("cat", "dog") for i in range(10)]
    folder = folder_of(tmp_path / "all", *names, f"loose.{suffix}", "README.txt")
    found = of_folder(folder, RecordFormat())
    assert isinstance(found, str)
    assert f"in 2 folders, but 1 other in the folder of no class (loose.{suffix}); move or remove it" in found


def test_a_text_beside_pictures_is_not_all_that_there_is_to_learn(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "all", *(f"{i}.png" for i in range(5)), "README.txt")
    assert of_folder(folder, RecordFormat()) == "it holds 5 × .png, 1 × .txt"


def test_a_class_within_the_folder_of_another_is_told(tmp_path: Path) -> None:
    pictures = [PurePosixPath(name) for name in ("train/cat/1.png", "train/cat/old/2.png", "dog/3.png")]
    assert _nested(pictures) == (
        "the files in train/cat/old are of the class old, and not of cat in whose folder it is",
    )
    assert _nested([pictures[0], pictures[2], PurePosixPath("train/dog/1.png")]) == ()


def test_animated_pictures_among_single_ones_are_told(tmp_path: Path) -> None:
    for i in range(8):
        (tmp_path / "ab"[i % 2]).mkdir(exist_ok=True)
        frames = [Image.new("L", (8, 8), 20 * j) for j in range(3 if i else 1)]
        frames[0].save(tmp_path / "ab"[i % 2] / f"{i}.gif", save_all=True, append_images=frames[1:])
    found = guess(tmp_path)
    assert found.recipe == "vit"
    assert found.seen[-1] == "7 of 8 that were looked at are animated, and only their first frame is read"
