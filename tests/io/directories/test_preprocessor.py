"""Pictures as numbers, the same to the last bit as those of transformers' processors on Pillow, and what is refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from qkv.io.directories.preprocessor import Near, Preprocessor, Within, _read, _size_of
from qkv.io.families import vit

TOWER = vit.vit(image=(8, 8), patch=(4, 4), d_model=4, n_layers=1, n_heads=1, d_ff=4, head=False)
CONFIG = {"size": {"height": 4, "width": 6}, "image_mean": [0.5], "image_std": [0.25]}


@pytest.mark.parametrize("shape", [(480, 640), (640, 480), (500, 500), (300, 1400), (1333, 799), (37, 91)])
def test_a_size_within_bounds_is_that_of_transformers(shape: tuple[int, int]) -> None:
    yolos = pytest.importorskip("transformers.models.yolos.image_processing_pil_yolos")
    theirs = yolos.get_size_with_aspect_ratio_yolos
    assert Within(512, 1333).of(shape) == theirs(shape, 512, 1333)


def test_a_size_near_a_pictures_own_is_that_of_transformers() -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    draw = random.Random(0)
    for _ in range(500):
        height, side, least = draw.randint(1, 3000), draw.choice((8, 28, 32)), draw.choice((64, 3136, 65536))
        shape, most = (height, draw.randint(1 + height // 200, 3000)), least * draw.choice((1, 4, 320))
        if max(shape) <= 200 * min(shape):
            assert Near(side, least, most).of(shape) == smart_resize(*shape, side, least, most), (
                shape,
                side,
                least,
                most,
            )


def test_sides_within_bounds_are_multiples_of_16() -> None:
    """480 × 640 to a shorter side of 512: 682.67 is cut to 682, and both are rounded down to multiples of 16."""
    assert Within(512, 1333).of((480, 640)) == (512, 672) and Within(512, 1333).of((640, 480)) == (672, 512)
    assert Within(512, 600).of((480, 640)) == (448, 592)  # the longer side decides: 450 × 600
    assert Within(100, 1000).of((50, 50)) == (96, 96)


@pytest.mark.parametrize(
    ("shape", "size"), [((10, 15), (4, 6)), ((15, 10), (6, 4)), ((10, 10), (4, 4)), ((7, 10), (4, 5))]
)
def test_a_shorter_side_keeps_the_aspect_ratio(shape: tuple[int, int], size: tuple[int, int]) -> None:
    assert _size_of(shape, 4) == size and _size_of(shape, (8, 9)) == (8, 9)


def test_pictures_are_cropped_in_the_middle_and_normalized() -> None:
    """A column of 0 … 5 in a row of 4: (x / 255 − 0.5) / 0.25."""
    made = _read({**CONFIG, "do_center_crop": True, "crop_size": {"height": 2, "width": 2}, "resample": 0}, 1)
    pixels = (np.arange(6, dtype=np.uint8) * 51)[None, None].repeat(4, 1)
    np.testing.assert_allclose(made.numbers(pixels)[0], [[-0.4, 0.4]] * 2, atol=1e-6)
    assert made.color == "gray" and made.filter == "nearest"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"do_resize": False}, "do_resize is false, so pictures have any size"),
        ({"rescale_factor": -1.0}, r"rescale_factor is -1\.0, and it is a number above 0"),
        (
            {"resample": 9},
            r"resample is 9, and what is built is 0 \(nearest\), 1 \(lanczos\), 2 .bilinear., 3 .bicubic.",
        ),
        ({"image_processor_type": "DPT", "size": {"shortest_edge": 4, "longest_edge": 9}}, "size has a longest_edge"),
        ({"do_center_crop": True, "crop_size": 0}, "sides have at least one pixel"),
        ({"image_mean": [0.5] * 3}, "have 3 and 1 channels, and the model reads 1"),
        ({"size": {"shortest_edge": 4}}, "it says one side alone"),
    ],
)
def test_what_is_not_built_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        _read({**CONFIG, **changes}, 1)


def test_older_files_give_bare_numbers() -> None:
    assert _read({**CONFIG, "size": 8}, 1).size == (8, 8)
    assert _read({**CONFIG, "size": 512, "max_size": 1333}, 1).size == Within(512, 1333)
    plain = _read({"size": 8, "do_normalize": False}, 3)
    assert plain.mean == (0.0,) * 3 and plain.std == (1.0,) * 3 and plain.color == "rgb"


# -- beside transformers -------------------------------------------------------------------------------------------------

SHAPES = ((1, 7), (40, 31), (13, 90), (24, 24), (5, 200), (64, 3))


def drawn_settings(seed: int) -> tuple[str, dict[str, Any]]:
    """A class of transformers and settings of it: every filter, sizes of one side and of two, crops larger and smaller than
    the picture, and steps that are left out."""
    draw = random.Random(seed)
    kind = ("CLIP", "Siglip", "ViT")[seed % 3]
    sides = {"height": draw.choice((8, 17, 30)), "width": draw.choice((8, 21, 30))}
    shortest = kind == "CLIP" and seed % 2 == 0
    crops = shortest or draw.random() < 0.4
    settings: dict[str, Any] = {"size": {"shortest_edge": draw.choice((6, 15, 24))} if shortest else sides}
    settings |= {"resample": seed % 6, "do_center_crop": crops, "do_normalize": draw.random() < 0.8}
    settings |= {"crop_size": {"height": draw.choice((4, 15, 33)), "width": draw.choice((5, 15, 40))}} if crops else {}
    settings |= {"do_rescale": draw.random() < 0.8, "rescale_factor": draw.choice((1 / 255, 1 / 127.5))}
    settings["do_resize"] = not crops or draw.random() < 0.8
    settings |= {key: [draw.uniform(0.1, 0.9) for _ in range(3)] for key in ("image_mean", "image_std")}
    return kind, settings


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_numbers_are_those_of_transformers_to_the_last_bit(seed: int, tmp_path: Path) -> None:
    import transformers

    kind, settings = drawn_settings(seed)
    theirs = getattr(transformers, f"{kind}ImageProcessorPil")(**settings)
    theirs.save_pretrained(tmp_path)
    ours = Preprocessor.of(tmp_path, TOWER)
    for shape in SHAPES:
        pixels = np.random.default_rng(seed).integers(0, 256, (*shape, 3), np.uint8)
        (expected,) = theirs(Image.fromarray(pixels), return_tensors="np")["pixel_values"]
        found = ours.numbers(pixels.transpose(2, 0, 1))
        assert found.shape == expected.shape and np.array_equal(found, expected.astype(np.float32)), shape


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["CLIP", "Siglip", "ViT"])
def test_what_a_file_leaves_out_is_what_transformers_takes(kind: str, tmp_path: Path) -> None:
    import transformers

    theirs = getattr(transformers, f"{kind}ImageProcessorPil")()
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": f"{kind}ImageProcessor"}))
    pixels = np.random.default_rng(0).integers(0, 256, (300, 240, 3), np.uint8)
    (expected,) = theirs(Image.fromarray(pixels), return_tensors="np")["pixel_values"]
    assert np.array_equal(Preprocessor.of(tmp_path, TOWER).numbers(pixels.transpose(2, 0, 1)), expected)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "1", "CMYK", "P with transparency"])
def test_pictures_of_any_mode_are_read_as_transformers_converts_them(mode: str, tmp_path: Path) -> None:
    """Transparent pictures stand on white."""
    import transformers

    draw = np.random.default_rng(1)
    picture = Image.fromarray(draw.integers(0, 256, (20, 16, 4), np.uint8), "RGBA")
    plain = mode.partition(" ")[0]
    picture = (
        picture if plain == "RGBA" else picture.convert("RGB" if plain in ("P", "CMYK", "1") else plain).convert(plain)
    )
    kept = {"transparency": 3} if "transparency" in mode else {}
    path = tmp_path / ("a.tiff" if plain == "CMYK" else "a.png")
    picture.save(path, **kept)
    theirs = transformers.CLIPImageProcessorPil(size={"shortest_edge": 12}, crop_size={"height": 12, "width": 12})
    theirs.save_pretrained(tmp_path)
    (expected,) = theirs(Image.open(path), return_tensors="np")["pixel_values"]
    ours = Preprocessor.of(tmp_path, TOWER)
    assert np.array_equal(ours.numbers(ours.read(path)), expected)


def test_a_picture_that_a_camera_turned_is_turned_back(tmp_path: Path) -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (6, 9, 3), np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn clockwise
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    made = _read({**CONFIG, "size": {"height": 9, "width": 6}, "image_mean": [0.5] * 3, "image_std": [0.25] * 3}, 3)
    turned = np.rot90(pixels, -1).transpose(2, 0, 1)
    assert np.array_equal(made.numbers(made.read(tmp_path / "a.png")), made.numbers(turned))


def test_a_long_and_narrow_picture_is_refused_if_it_would_be_enlarged_too_far() -> None:
    made = _read({**CONFIG, "size": {"shortest_edge": 224}, "do_center_crop": True, "crop_size": 224}, 1)
    with pytest.raises(ValueError, match=r"thin.png has 1 × 5,000 pixels, which is too long and narrow"):
        made.numbers(np.zeros((1, 1, 5000), np.uint8), "thin.png")
    stretched = _read({**CONFIG, "size": 16}, 1)
    assert stretched.numbers(np.zeros((1, 1, 5000), np.uint8)).shape == (1, 16, 16)


def test_a_crop_larger_than_the_picture_is_black_around_it() -> None:
    """One pixel in four: of the three others, two stand before it."""
    made = _read({**CONFIG, "do_resize": False, "do_center_crop": True, "crop_size": {"height": 1, "width": 4}}, 1)
    numbers = made.numbers(np.array([[[255]]], np.uint8))
    np.testing.assert_allclose(numbers[0], [[-2, -2, 2, -2]])


def test_settings_beside_those_of_the_tokenizer_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": {**CONFIG, "image_mean": 0.5}}))
    with pytest.raises(ValueError, match=r"processor_config\.json: image_mean and image_std have 3 and 1 channels"):
        Preprocessor.of(tmp_path, TOWER)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**CONFIG, "image_mean": 0.5, "image_std": 0.25}))
    assert Preprocessor.of(tmp_path, TOWER).std == (0.25,) * 3


def test_old_files_of_clip_mean_the_shorter_side() -> None:
    kind = {"feature_extractor_type": "CLIPFeatureExtractor", "size": 24, "crop_size": 20}
    made = _read(kind, 3)
    assert made.size == 24 and made.crop == (20, 20) and made.filter == "bicubic" and made.mean[0] == 0.48145466


def test_pictures_fill_patches_as_in_transformers(tmp_path: Path) -> None:
    """SigLIP 2: the largest size of at most so many patches, to the last bit."""
    from transformers import Siglip2ImageProcessorPil

    theirs = Siglip2ImageProcessorPil(patch_size=4, max_num_patches=37, resample=3, image_mean=[0.1, 0.2, 0.3])
    theirs.save_pretrained(tmp_path)
    ours = Preprocessor.of(tmp_path, TOWER)
    for shape in (*SHAPES, (1, 500)):
        pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
        expected = theirs(Image.fromarray(pixels), return_tensors="np")
        found, (rows, columns) = ours.numbers(pixels.transpose(2, 0, 1)), expected["spatial_shapes"][0]
        assert found.shape == (3, 4 * rows, 4 * columns)
        patches = found.reshape(3, rows, 4, columns, 4).transpose(1, 3, 2, 4, 0).reshape(rows * columns, -1)
        assert np.array_equal(patches, expected["pixel_values"][0][: rows * columns]), shape
    for changes, said in (
        ({"max_num_patches": 0}, "max_num_patches must be a whole number of at least 1"),
        ({"do_resize": False}, "whole patches"),
    ):
        (tmp_path / "preprocessor_config.json").write_text(json.dumps({**theirs.to_dict(), **changes}))
        with pytest.raises(ValueError, match=said):
            Preprocessor.of(tmp_path, TOWER)
