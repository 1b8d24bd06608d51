from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from qkv.data.readers.segmentation_masks import Masks, read_mask


def write(folder: Path, stems: list[str], images: str = "image", masks: str = "label") -> None:
    for name, mode in ((images, "RGB"), (masks, "L")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i, stem in enumerate(stems):
            Image.new(mode, (6, 4), i).save(folder / name / f"{stem}.png")


def test_pictures_and_masks_meet_by_name_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    write(tmp_path, ["10", "2", "1"])
    (tmp_path / "image" / "2.png").rename(tmp_path / "image" / "2.jpg")
    (tmp_path / "image" / "notes.txt").write_text("none")
    table = Masks(path=str(tmp_path), validation_path=str(tmp_path), test_path=str(tmp_path)).table("train")
    found = [table[i] for i in range(len(table))]
    assert [one["image"].name for one in found if one] == ["1.png", "2.jpg", "10.png"]
    assert [read_mask(one["mask"])[0, 0] for one in found if one] == [2, 1, 0]


def test_what_has_no_folder_is_held_out(tmp_path: Path) -> None:
    write(tmp_path, [str(i) for i in range(100)])
    source = Masks(path=str(tmp_path))
    parts = {split: {one["where"] for one in source.examples(split)} for split in ("train", "validation", "test")}
    assert [len(part) for part in parts.values()] == [80, 10, 10] and len(set.union(*parts.values())) == 100
    assert "held out" in source.notes()[0]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("image/4.png", r"4\.png' has no mask of its name \(1 such files\)"),
        ("label/4.png", r"4\.png' has no picture of its name"),
        ("image/1.gif", r"1\.png' and '1\.gif' have one name|1\.gif.* have one name"),
    ],
)
def test_files_without_another_are_told(where: str, said: str, tmp_path: Path) -> None:
    write(tmp_path, ["1", "2"])
    Image.new("L", (6, 4)).save(tmp_path / where)
    with pytest.raises(ValueError, match=said):
        Masks(path=str(tmp_path)).open("train")


def test_missing_folders_are_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data\.path, a folder"):
        Masks().table("train")
    with pytest.raises(ValueError, match=r"no folder .*image"):
        Masks(path=str(tmp_path)).open("train")
    write(tmp_path, [])
    with pytest.raises(ValueError, match="no picture in"):
        Masks(path=str(tmp_path)).open("train")


def test_masks_of_any_mode_are_their_numbers(tmp_path: Path) -> None:
    numbers = np.array([[0, 1], [2, 200]], np.uint8)
    palette = Image.fromarray(numbers, "P")
    palette.putpalette([7, 7, 7] * 256)
    saved = {
        "gray": Image.fromarray(numbers),
        "palette": palette,
        "three": Image.fromarray(np.repeat(numbers[..., None], 3, 2)),
        "wide": Image.fromarray(numbers.astype(np.uint16)),
    }
    for name, image in saved.items():
        image.save(tmp_path / f"{name}.png")
        assert (read_mask(tmp_path / f"{name}.png") == numbers).all(), name
    Image.fromarray(numbers > 1).save(tmp_path / "bits.png")
    assert read_mask(tmp_path / "bits.png").tolist() == [[0, 0], [255, 255]]


def test_what_is_no_mask_is_told(tmp_path: Path) -> None:
    Image.fromarray(np.arange(12, dtype=np.uint8).reshape(2, 2, 3)).save(tmp_path / "color.png")
    Image.fromarray(np.full((2, 2), 300, np.uint16)).save(tmp_path / "wide.png")
    (tmp_path / "none.png").write_bytes(b"no picture")
    for name, said in (("color", "3 channels of uint8"), ("wide", "1 channels of"), ("none", "can't be read")):
        with pytest.raises(ValueError, match=rf"{name}\.png.*{said}"):
            read_mask(tmp_path / f"{name}.png")


def test_masks_of_fractions_and_postscript_are_none(tmp_path: Path) -> None:
    Image.fromarray(np.full((2, 2), 0.5, np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(ValueError, match=r"a\.tif' is no mask: it has 1 channels of float32"):
        read_mask(tmp_path / "a.tif")
    (tmp_path / "b.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")
    with pytest.raises(ValueError, match=r"b\.png' can't be read as a mask: cannot identify"):
        read_mask(tmp_path / "b.png")


def test_masks_that_compression_changed_are_told(tmp_path: Path) -> None:
    write(tmp_path, [str(i) for i in range(20)])
    assert "JPEG" not in " ".join(Masks(path=str(tmp_path)).notes())
    for i in range(3):
        (tmp_path / "label" / f"{i}.png").unlink()
        Image.fromarray(np.random.default_rng(i).choice(np.array([0, 90], np.uint8), (24, 24))).save(
            tmp_path / "label" / f"{i}.JPG"
        )
    assert "3 masks of 20 in JPEG format, such as '0.JPG'" in Masks(path=str(tmp_path)).notes()[0]
    assert set(np.unique(read_mask(tmp_path / "label" / "0.JPG"))) > {0, 90}
