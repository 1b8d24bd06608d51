"""Image files in folders, archives and tables: their classes and splits, and errors for what can't be opened."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from qkv.data.files.compressed import _reader
from qkv.data.files.records import RecordFormat
from qkv.data.media.image_files import Listed
from qkv.data.readers.images import Images, ImageSource
from qkv.data.source import SPLITS, Counts, Skipped, Split, read


def picture(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (3, 4, 5), np.uint8)


def write(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(number).transpose(1, 2, 0)).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes in three splits, and things that are no pictures."""
    root = tmp_path / "photos"
    for k, split in enumerate(("train", "val", "test")):
        for c, name in enumerate(("cat", "dog")):
            for i in range(3):
                write(root / split / name / f"{i}.png", 100 * k + 10 * c + i)
    (root / "readme.txt").write_text("pictures")
    write(root / "train" / "cat" / "._0.png", 7)
    return root


def packed(root: Path, name: str) -> Path:
    path = root.parent / name
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(root.rglob("*.*")):
                archive.write(file, file.relative_to(root.parent))
    elif name.endswith(".zst"):
        pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
        with _reader(path)[0](path, "wb") as file, tarfile.open(fileobj=file, mode="w|") as archive:
            archive.add(root, root.name)
    else:
        with tarfile.open(path, {"tar": "w", "xz": "w:xz", "tgz": "w:gz"}[name.rpartition(".")[2]]) as archive:
            archive.add(root, root.name)
    return path


def all_of(source: ImageSource, split: Split) -> list[tuple[str, bytes]]:
    return sorted((e["label"], e["image"].tobytes()) for e in source.examples(split, shuffle=False))


@pytest.mark.parametrize("name", ["p.tar", "p.tar.xz", "p.tgz", "p.tar.zst", "p.zip"])
def test_archives_hold_what_folders_hold(folder: Path, name: str) -> None:
    archive = Images(path=str(packed(folder, name)))
    for split in SPLITS:
        assert all_of(archive, split) == all_of(Images(path=str(folder)), split)


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    for i in range(4):
        write(tmp_path / "train" / f"{i}.png", i)
        write(tmp_path / "bus" / f"{i}.png", 10 + i)
    assert set(Images(path=str(tmp_path)).table("train").labels) == {"train", "bus"}


@pytest.mark.parametrize("split", ["", "train/"])
def test_folders_of_one_name_in_several_places_are_separate_classes(tmp_path: Path, split: str) -> None:
    for n, name in enumerate(("Greek/1", "Greek/2", "Balinese/1", "Balinese/3")):
        for i in range(4):
            write(tmp_path / "all" / f"{split}{name}" / f"{i}.png", 10 * n + i)
    source = Images(path=str(tmp_path))
    assert set(source.table("train").labels) == {"Greek/1", "Greek/2", "Balinese/1", "Balinese/3"}
    assert source.notes()[0] == (
        "1 folder name(s) occur in several places ('1'), so classes are named by whole paths ('Balinese/1')"
    )


def test_folders_of_different_names_are_classes_however_deep_they_lie(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for n, name in enumerate(("pets/cat", "pets/dog", "farm/cow")):
            for i in range(4):
                write(tmp_path / "all" / split / name / f"{i}.png", 10 * n + i)
    source = Images(path=str(tmp_path))
    assert set(source.table("train").labels) == {"cat", "dog", "cow"} and len(source.notes()) == 1


def test_splits_without_classes(tmp_path: Path) -> None:
    for i in range(4):
        write(tmp_path / "train" / f"{i}.png", i)
        write(tmp_path / "test" / f"{i}.png", 10 + i)
        write(tmp_path / "valid" / f"{i}.png", 20 + i)
    source = Images(path=str(tmp_path))
    assert [len(source.table(split)) for split in SPLITS] == [4, 4, 4]
    assert "label" not in next(source.examples("train"))


def test_a_table_names_pictures_and_classes(folder: Path) -> None:
    rows = [f"train/{name}/{i}.png,{name}" for name in ("cat", "dog") for i in range(3)]
    (folder / "list.csv").write_text("\n".join(["path,label", *rows, "train/cat/gone.png,cat", ""]))
    source = Images(path=str(folder / "list.csv"), validation_path=str(folder), test_path=str(folder))
    counts = Counts()
    found = read(source.table("train"), range(7), counts)
    assert sorted(e["label"] for e in found) == ["cat"] * 3 + ["dog"] * 3
    assert counts.skipped == {"not there": 1}
    assert all_of(source, "test") == all_of(Images(path=str(folder)), "test")
    windows = [f"{row}".replace("/", "\\") + ",8" for row in rows]
    (folder / "bare.csv").write_text("\n".join(windows))  # without names, of three columns
    bare = Images(path=str(folder / "bare.csv"), validation_path=str(folder), test_path=str(folder))
    assert sorted(e["label"] for e in read(bare.table("train"), range(6), Counts())) == ["cat"] * 3 + ["dog"] * 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("path,label\na.png\n", "line 2, has 1 cells"),
        ("path,label\n", "there is no picture in"),
        ("a,b\nx,y\n", "has no column 'clas'"),
    ],
)
def test_a_table_that_is_none(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(ValueError, match=said):
        Images(path=str(tmp_path / "list.csv"), label_column="clas" if "clas" in said else None).table("train")


@pytest.mark.parametrize(
    ("name", "said"), [("gone", "there is no folder"), ("x.txt", "are not read"), ("x", "no picture in")]
)
def test_places_without_pictures(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "x.txt").write_text("x")
    (tmp_path / "x").mkdir()
    with pytest.raises(ValueError, match=said):
        Images(path=str(tmp_path / name)).table("train")


@pytest.mark.parametrize("name", ["p.tar", "p.tar.xz", "p.tgz", "p.tar.zst", "p.zip"])
def test_broken_archives_are_named(folder: Path, name: str) -> None:
    path = packed(folder, name)
    path.write_bytes(path.read_bytes()[:500] if name != "p.zip" else b"PK\3\4")
    with pytest.raises(ValueError, match=f"{name}' is not a whole archive"):
        Images(path=str(path)).table("train")


def test_files_are_known_by_every_ending_that_pillow_reads(tmp_path: Path) -> None:
    from qkv.data.media.image_files import SUFFIXES
    from qkv.data.media.images import NOT_READ

    Image.init()
    read_by_pillow = {
        ending for ending, kind in Image.registered_extensions().items() if kind in Image.OPEN and kind not in NOT_READ
    }
    assert read_by_pillow - SUFFIXES == set()
    for i, ending in enumerate((".avif", ".jp2", ".tga", ".jfif", ".qoi", ".webp", ".ico")):
        for name in ("a", "b"):
            (tmp_path / name).mkdir(exist_ok=True)
            Image.new("RGB", (32, 32), (10 * i, 0, 0)).save(tmp_path / name / f"{i}{ending}")
    source = Images(path=str(tmp_path), validation_path=str(tmp_path), test_path=str(tmp_path))
    assert len(list(source.examples("test"))) == 14


LISTED = [(f"{i}.png", ("red", "black")[i % 2]) for i in range(12)]


@pytest.mark.parametrize(
    ("first", "sep", "header"),
    [("", ",", None), ("image,label", ",", None), ("bild;klasse", ";", None), ("x.png,y", ",", True), ("", ";", None)],
)
def test_a_table_has_names_by_the_decision_for_all_tables(
    tmp_path: Path, first: str, sep: str, header: bool | None
) -> None:
    lines = ([first] if first else []) + [sep.join(row) for row in LISTED]
    (tmp_path / "list.csv").write_text("\n".join(lines))
    files = Listed(
        tmp_path / "list.csv", None, 1 if first and "label" not in first else None, how=RecordFormat(header=header)
    )
    assert [(name, files.label(i)) for i, name in enumerate(files.names)] == LISTED
    assert bool(header) or any("the first line of 'list.csv'" in note for note in files.notes)


def test_more_cells_than_columns_are_refused_or_skipped(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text("image,label\n" + "".join(f"{a},{b}\n" for a, b in LISTED) + "a,b.png,red\n")
    with pytest.raises(ValueError, match=r"1 row with more cells than its header's 2: line 14 .*data.on_error=skip"):
        Listed(path, None, None)
    files = Listed(path, None, None, how=RecordFormat(strict=False))
    assert files.read(12) == "with more cells than columns" and len(files.names) == 13


@pytest.mark.parametrize("label", ["", "nan", "NA"])
def test_a_missing_label_is_no_class(tmp_path: Path, label: str) -> None:
    (tmp_path / "list.csv").write_text(f"image,label\na.png,{label}\nb.png,x\n")
    files = Listed(tmp_path / "list.csv", None, None)
    assert isinstance(files.label(0), Skipped) and files.label(1) == "x"
    kept = Listed(tmp_path / "list.csv", None, None, how=RecordFormat(missing=()))
    assert kept.label(0) == (label or Skipped("without a 'label'"))
