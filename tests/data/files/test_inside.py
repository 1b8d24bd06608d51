"""A data file names no file outside of the folder that the user gave."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from qkv.data.files.inside import inside
from qkv.data.readers.coco_voc import Coco
from qkv.data.readers.image_captions import Captions
from qkv.data.readers.images import Images
from qkv.data.readers.parquet import Parquet

OUTSIDE = [
    "../secret.png",
    "a/../../secret.png",
    "a/../a.png",
    "{}/secret.png",
    "~/secret.png",
    "link.png",
    "links/a.png",
]
ADDRESSES = ["https://example.org/a.png", "file:///etc/passwd", "hf://datasets/a/b.png", "data:image/png,x"]
WINDOWS = ["C:\\secret.png", "\\\\server\\secret.png", "c:secret.png"]
NO_PATHS = ["", " ", "a\0.png"]


def test_backslashes_divide_folders_as_on_windows(folder: Path) -> None:
    assert inside(folder, "a\\b.png", "x") == folder / "a" / "b.png"
    with pytest.raises(ValueError, match="lies outside of"):
        inside(folder, "a\\..\\..\\secret.png", "x")
    (folder / "a\\b.png").write_bytes(b"")
    assert inside(folder, "a\\b.png", "x") == folder / "a\\b.png"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of pictures with links to others outside of it."""
    data = tmp_path / "data"
    for path in (tmp_path / "secret.png", tmp_path / "elsewhere" / "a.png", data / "a.png", data / "a" / "b.png"):
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4)).save(path)
    (data / "link.png").symlink_to(tmp_path / "secret.png")
    (data / "links").symlink_to(tmp_path / "elsewhere")
    (data / "own.png").symlink_to(data / "a.png")
    return data


def test_files_within_are_found(folder: Path) -> None:
    for name in ("a.png", "a/b.png", "./a.png", "own.png", "missing.png", "…/ä b.png", "a..png"):
        assert inside(folder, name, "x") == folder / name
    assert inside(folder, str(folder / "a.png"), "x") == folder / "a.png"


def test_a_folder_may_itself_be_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(folder)
    assert inside(tmp_path / "linked", "a/b.png", "x").is_file()


@pytest.mark.parametrize("name", [*OUTSIDE, *WINDOWS])
def test_what_lies_outside_is_refused(name: str, folder: Path) -> None:
    with pytest.raises(
        ValueError, match=r"^a\.json: 3 names the file .* lies outside of .*; files are read from this folder"
    ):
        inside(folder, name.format(folder.parent), "a.json: 3")


@pytest.mark.parametrize("name", ADDRESSES)
def test_addresses_are_not_followed(name: str, folder: Path) -> None:
    with pytest.raises(ValueError, match="addresses are not followed; download the file"):
        inside(folder, name, "a.json: 3")


@pytest.mark.parametrize("name", [*NO_PATHS, "a" * 5000])
def test_what_is_no_path_is_told(name: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=r"no path|can't be looked up") as error:
        inside(folder, name, "a.json: 3")
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


# -- every reader whose data name files ----------------------------------------------------------------------------------


def _coco(folder: Path, name: str) -> Any:
    content = {"images": [{"id": 1, "file_name": name}], "annotations": [], "categories": []}
    (folder / "a.json").write_text(json.dumps(content))
    return Coco(path=str(folder / "a.json")).open("train")[0]


def _captions(folder: Path, name: str) -> Any:
    (folder / "a.jsonl").write_text(json.dumps({"image": name, "answer": "a dog"}))
    return Captions(path=str(folder / "a.jsonl")).open("train")[0]


def _table(folder: Path, name: str) -> Any:
    (folder / "a.csv").write_text(f'image,label\n"{name}",dog\n')
    store = Images(path=str(folder / "a.csv")).store("train")
    assert store is not None
    return store.pixels(0)


def _parquet(folder: Path, name: str, nested: bool = False) -> Any:
    import pyarrow
    import pyarrow.parquet

    image = {"bytes": None, "path": name} if nested else name
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"image": image, "label": "dog"}]), folder / "a.parquet")
    return Parquet(path=str(folder / "a.parquet")).open("train")[0]


def _nested(folder: Path, name: str) -> Any:
    return _parquet(folder, name, nested=True)


READERS: list[Callable[[Path, str], Any]] = [_coco, _captions, _table, _parquet, _nested]


@pytest.mark.parametrize("read", READERS)
def test_readers_find_files_within(read: Callable[[Path, str], Any], folder: Path) -> None:
    for name in ("a.png", "a/b.png", "own.png"):
        example = read(folder, name)
        image = example["image"] if isinstance(example, dict) else example
        assert isinstance(image, np.ndarray) or image == folder / name


@pytest.mark.parametrize("name", [*OUTSIDE, *ADDRESSES, *WINDOWS])
@pytest.mark.parametrize("read", READERS)
def test_readers_refuse_files_outside(read: Callable[[Path, str], Any], name: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=r"lies outside of|addresses are not followed") as error:
        read(folder, name.format(folder.parent))
    assert str(folder / "a") in str(error.value) and "\n" not in str(error.value)


def test_the_advice_of_the_refusal_works(folder: Path) -> None:
    (folder / "a.csv").write_text(f"image,label\n{folder.parent}/secret.png,dog\n")
    store = Images(path=str(folder / "a.csv"), images=str(folder.parent)).store("train")
    assert store is not None and isinstance(store.pixels(0), np.ndarray)
    content = {"images": [{"id": 1, "file_name": "secret.png"}], "annotations": [], "categories": []}
    (folder / "a.json").write_text(json.dumps(content))
    assert Coco(path=str(folder / "a.json"), images=str(folder.parent)).open("train")[0]["image"].is_file()
