"""Folders, archives, tables and IDX files: the same pictures whichever holds them; splits and classes by their places."""

from __future__ import annotations

import gzip
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from qkv.data.readers.images import Images, ImageSource, ImageTable
from qkv.data.readers.mnist_idx import Idx
from qkv.data.readers.sklearn_digits import Digits
from qkv.data.source import SPLITS, Counts, Split, read

DATA = Path(__file__).parents[4] / "shared" / "data"


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
    else:
        with tarfile.open(path, {"tar": "w", "xz": "w:xz", "tgz": "w:gz"}[name.rpartition(".")[2]]) as archive:
            archive.add(root, root.name)
    return path


def all_of(source: ImageSource, split: Split) -> list[tuple[str, bytes]]:
    return sorted((e["label"], e["image"].tobytes()) for e in source.examples(split, shuffle=False))


def test_folders_name_splits_and_classes(folder: Path) -> None:
    source = Images(path=str(folder))
    assert source.notes() == ()
    for k, split in enumerate(SPLITS):
        wanted = sorted(
            (n, picture(100 * k + 10 * c + i).tobytes()) for c, n in enumerate(("cat", "dog")) for i in range(3)
        )
        assert all_of(source, split) == wanted
    assert sorted(map(str, source.table("train").labels)) == ["cat"] * 3 + ["dog"] * 3
    places = {e["where"].partition(", ")[2] for e in source.examples("test")}
    assert places == {f"test/{name}/{i}.png" for name in ("cat", "dog") for i in range(3)}


@pytest.mark.parametrize("name", ["p.tar", "p.tar.xz", "p.tgz", "p.zip"])
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
def test_folders_of_one_name_in_several_places_are_classes_of_their_own(tmp_path: Path, split: str) -> None:
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


def test_some_are_held_out_always_the_same_where_nothing_is_given(tmp_path: Path) -> None:
    for i in range(120):
        write(tmp_path / "ab"[i % 2] / f"{i}.png", i)
    source = Images(path=str(tmp_path))
    assert source.notes() == ("held out of the training pictures by hash: 2 for validation and 2 for test",)
    names = [{e["where"] for e in source.examples(split)} for split in SPLITS]
    assert [len(n) for n in names] == [116, 2, 2] and len(set.union(*names)) == 120
    assert all_of(Images(path=str(tmp_path)), "test") == all_of(source, "test")


def test_the_first_pictures_are_of_all_classes_though_folders_are_sorted(tmp_path: Path) -> None:
    for i in range(200):
        write(tmp_path / "abcd"[i // 50] / f"{i}.png", i)
    source = Images(path=str(tmp_path), test_path=str(tmp_path))
    for split in ("train", "test"):
        assert set(source.table(split).labels[:40]) == set("abcd")  # type: ignore[arg-type]


def test_few_pictures_are_not_split(tmp_path: Path) -> None:
    write(tmp_path / "a" / "1.png", 1)
    with pytest.raises(ValueError, match="only 1 picture"):
        Images(path=str(tmp_path)).table("train")


def test_a_table_names_pictures_and_classes(folder: Path) -> None:
    rows = [f"train/{name}/{i}.png,{name}" for name in ("cat", "dog") for i in range(3)]
    (folder / "list.csv").write_text("\n".join(["path,label", *rows, "train/cat/gone.png,cat", ""]))
    source = Images(path=str(folder / "list.csv"), validation_path=str(folder), test_path=str(folder))
    counts = Counts()
    found = read(source.table("train"), range(7), counts)
    assert sorted(e["label"] for e in found) == ["cat"] * 3 + ["dog"] * 3
    assert counts.skipped == {"not there": 1}
    assert all_of(source, "test") == all_of(Images(path=str(folder)), "test")


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


def test_broken_pictures_are_skipped_and_counted(folder: Path) -> None:
    (folder / "train" / "cat" / "3.jpg").write_bytes(b"nothing")
    (folder / "train" / "cat" / "4.jpg").write_bytes(b"")
    counts = Counts()
    table = Images(path=str(folder), most_pixels=20).table("train")
    assert len(read(table, range(len(table)), counts)) == 6
    assert counts.skipped == {"no picture in a known format": 1, "empty": 1}
    assert not read(Images(path=str(folder), most_pixels=19).table("test"), range(6), counts)
    assert counts.skipped["larger than 19 pixels"] == 6


@pytest.mark.parametrize(
    ("name", "said"), [("gone", "there is no folder"), ("x.txt", "are not read"), ("x", "no picture in")]
)
def test_places_without_pictures(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "x.txt").write_text("x")
    (tmp_path / "x").mkdir()
    with pytest.raises(ValueError, match=said):
        Images(path=str(tmp_path / name)).table("train")


@pytest.mark.parametrize("name", ["p.tar", "p.tar.xz", "p.tgz", "p.zip"])
def test_broken_archives_are_named(folder: Path, name: str) -> None:
    path = packed(folder, name)
    path.write_bytes(path.read_bytes()[:500] if name != "p.zip" else b"PK\3\4")
    with pytest.raises(ValueError, match=f"{name}' is not a whole archive"):
        Images(path=str(path)).table("train")


def test_decoded_pictures_are_kept_within_a_budget(folder: Path) -> None:
    kept, forgotten = Images(path=str(folder)).table("train"), Images(path=str(folder), cache=0).table("train")
    assert kept[0]["image"] is kept[0]["image"]
    assert forgotten[0]["image"] is not forgotten[0]["image"]


# -- arrays ------------------------------------------------------------------------------------------------------------


def idx(path: Path, array: np.ndarray) -> None:
    with gzip.open(path, "wb") as file:
        file.write(bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes())


def test_idx_files(tmp_path: Path) -> None:
    images, labels = np.arange(5 * 6, dtype=np.uint8).reshape(5, 2, 3), np.array([3, 1, 4, 1, 5], np.uint8)
    for start in ("train", "t10k", "val"):
        idx(tmp_path / f"{start}-images-idx3-ubyte.gz", images)
        idx(tmp_path / f"{start}-labels-idx1-ubyte.gz", labels)
    for source in (Idx(path=str(tmp_path)), Idx(path=str(tmp_path / "train-images-idx3-ubyte.gz"), test_path=None)):
        if source.path == str(tmp_path):
            found = {e["where"]: e for e in source.examples("test")}
            ordered = [found[name] for name in sorted(found)]
            assert [e["label"] for e in ordered] == ["3", "1", "4", "1", "5"]
            np.testing.assert_array_equal(np.stack([e["image"][0] for e in ordered]), images)
        else:
            assert source.table("test").labels[0] in "31415"


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda p: idx(p / "train-labels.gz", np.zeros(3, np.uint8)), "holds 4 images and train-labels.gz 3 labels"),
        (lambda p: (p / "train-labels.gz").unlink(), "has no labels beside it"),
        (lambda p: idx(p / "train-images.gz", np.zeros((2, 2), np.uint8)), "2 axes"),
        (lambda p: (p / "train-images.gz").write_bytes(gzip.compress(b"\0\0\x0d\1" + b"\0" * 9)), "not an IDX file"),
        (
            lambda p: (p / "train-images.gz").write_bytes(gzip.compress(b"\0\0\x08\3" + b"\0\0\0\2" * 3)),
            "2 bytes by its header, but holds 0",
        ),
        (lambda p: (p / "train-images.gz").unlink(), "there is no file train"),
    ],
)
def test_broken_idx_files(tmp_path: Path, break_it, said: str) -> None:  # type: ignore[no-untyped-def]
    idx(tmp_path / "train-images.gz", np.zeros((4, 2, 2), np.uint8))
    idx(tmp_path / "train-labels.gz", np.zeros(4, np.uint8))
    break_it(tmp_path)
    with pytest.raises(ValueError, match=said):
        Idx(path=str(tmp_path)).table("train")


def test_digits_come_along() -> None:
    source = Digits()
    assert [len(source.table(split)) for split in SPLITS] == [1347, 150, 300]
    one = next(source.examples("test", shuffle=False))
    assert one["image"].shape == (1, 8, 8) and one["image"].max() > 200 and one["label"] in "0123456789"
    seen = {e["where"] for split in SPLITS for e in source.examples(split)}
    assert len(seen) == 1797


@pytest.mark.skipif(not (DATA / "mnist").is_dir(), reason="shared/data/mnist is not here")
def test_mnist_is_read() -> None:
    source = Idx(path=str(DATA / "mnist"))
    assert len(source.table("test")) == 10_000
    counts = np.bincount(list(map(int, source.table("test").labels)))  # type: ignore[arg-type]
    assert counts.tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]  # of the published test set


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


def test_what_is_skipped_is_named(tmp_path: Path) -> None:
    for i in range(4):
        write(tmp_path / "ab"[i % 2] / f"{i}.png", i)
    for name in ("x", "y"):
        (tmp_path / "a" / f"{name}.png").write_bytes(b"<html>")
    table, counts = Images(path=str(tmp_path), validation_path="x", test_path="x"), Counts()
    store = table.store("train")
    assert store is not None
    found = read(ImageTable(store, np.arange(6)), range(6), counts)
    assert len(found) == 4
    assert "2 skipped (2 no picture in a known format, first 'a/x.png')" in str(counts)
    later = Counts()
    later.add(counts)
    assert later.first == counts.first


def test_the_bits_of_a_folder_are_those_of_all_its_pictures(tmp_path: Path) -> None:
    """Two pictures alike stay alike, whatever is the brightest pixel in each."""
    for i, brightest in enumerate((4000, 4100, 1000, 2000)):
        (tmp_path / "deep" / "train" / "cat").mkdir(parents=True, exist_ok=True)
        values = np.array([[160, brightest]], np.uint16)
        Image.fromarray(values).save(tmp_path / "deep" / "train" / "cat" / f"{i}.png")

    def pixels(**options: object) -> dict[str, list[int]]:
        source = Images(path=str(tmp_path / "deep"), color="gray", test_path=str(tmp_path / "deep"), **options)
        store = source.store("train")
        assert store is not None
        found = (store.pixels(i) for i in range(4))
        return {name: one.ravel().tolist() for name, one in zip(store.names, found, strict=True)}

    with pytest.warns(UserWarning, match=r"deep/train/cat/0\.png has 16 bits.*data\.bits=12"):
        assert [values[1] for values in pixels().values()] == [15, 16, 3, 7]
    with pytest.warns(UserWarning, match=r"deep/train/cat/1\.png has values up to 4,100"):
        assert [values[1] for values in pixels(bits=12).values()] == [250, 255, 62, 125]
    (tmp_path / "deep" / "train" / "cat" / "1.png").unlink()
    (tmp_path / "deep").rename(tmp_path / "dim")
    source = Images(path=str(tmp_path / "dim"), color="gray")
    assert source.depth == 12 and "data.bits=16" in source.notes()[-1]
