"""Folders, archives, tables and IDX files: the same pictures whichever holds them; splits and classes by their places."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from qkv.data.readers.images import Images, ImageSource, ImageTable
from qkv.data.source import SPLITS, Counts, Split, read


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


def test_broken_pictures_are_skipped_and_counted(folder: Path) -> None:
    (folder / "train" / "cat" / "3.jpg").write_bytes(b"nothing")
    (folder / "train" / "cat" / "4.jpg").write_bytes(b"")
    counts = Counts()
    table = Images(path=str(folder), most_pixels=20).table("train")
    assert len(read(table, range(len(table)), counts)) == 6
    assert counts.skipped == {"no picture in a known format": 1, "empty": 1}
    assert not read(Images(path=str(folder), most_pixels=19).table("test"), range(6), counts)
    assert counts.skipped["larger than 19 pixels"] == 6


def test_decoded_pictures_are_kept_within_a_budget(folder: Path) -> None:
    kept, forgotten = Images(path=str(folder)).table("train"), Images(path=str(folder), cache=0).table("train")
    assert kept[0]["image"] is kept[0]["image"]
    assert forgotten[0]["image"] is not forgotten[0]["image"]


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


def test_the_bits_of_a_folder_match_all_its_pictures(tmp_path: Path) -> None:
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
