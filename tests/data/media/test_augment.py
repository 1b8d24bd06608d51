"""What augmentation does to pictures, held to what its papers say, and to Pillow where that has the same change."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from qkv.data.media import image_ops
from qkv.data.media.augment import (
    OPERATIONS,
    Augmentation,
    ColorJitter,
    CutMix,
    Flip,
    MixUp,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomResizedCrop,
    mixed,
)


def noise(n: int = 8, channels: int = 3, side: int = 12) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (n, channels, side, side), np.uint8)


EVERY: dict[str, Augmentation] = {
    "crop": RandomCrop(padding=2),
    "crop, mirrored": RandomCrop(padding=2, fill="mirror"),
    "resized crop": RandomResizedCrop(),
    "flip": Flip(),
    "jitter": ColorJitter(hue=0.1),
    "rand-augment": RandAugment(),
    "erasing": RandomErasing(p=0.5),
    "erasing, mean": RandomErasing(p=0.5, fill="mean"),
}


@pytest.mark.parametrize("change", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("channels", [1, 3])
def test_seeded_new_and_of_the_same_form(change: Augmentation, channels: int) -> None:
    pixels = noise(16, channels)
    before = pixels.copy()
    out = change(pixels, np.random.default_rng(3))
    assert out.shape == pixels.shape and out.dtype == np.uint8
    np.testing.assert_array_equal(pixels, before)
    np.testing.assert_array_equal(change(pixels, np.random.default_rng(3)), out)
    assert (change(pixels, np.random.default_rng(4)) != out).any()
    assert Augmentation.from_dict(change.to_dict()) == change


# -- places ------------------------------------------------------------------------------------------------------------


def test_a_random_crop_is_the_picture_shifted_every_way_alike() -> None:
    number = np.arange(1, 37, dtype=np.uint8).reshape(1, 1, 6, 6)
    pixels = np.repeat(number, 3000, 0)
    out = RandomCrop(padding=2)(pixels, np.random.default_rng(0))
    padded = np.pad(number[0, 0], 2)
    places = {padded[y : y + 6, x : x + 6].tobytes(): 0 for y in range(5) for x in range(5)}
    for picture in out[:, 0]:
        places[picture.tobytes()] += 1
    assert min(places.values()) > 60 and max(places.values()) < 190  # 120 each, of 25 places


def test_mirrored_crops_need_room() -> None:
    with pytest.raises(ValueError, match="can't be mirrored for 6"):
        RandomCrop(padding=6, fill="mirror")(noise(side=6), np.random.default_rng(0))


def test_half_of_all_pictures_are_flipped() -> None:
    pixels = noise(400)
    out = Flip()(pixels, np.random.default_rng(0))
    flipped = [np.array_equal(a, b[..., ::-1]) for a, b in zip(out, pixels, strict=True)]
    assert 160 < sum(flipped) < 240
    same = [np.array_equal(a, b) for a, b in zip(out, pixels, strict=True)]
    assert all(a != b for a, b in zip(flipped, same, strict=True))


def test_boxes_are_of_the_area_and_shape_asked_for_and_inside() -> None:
    y, x = np.mgrid[:200, :300]
    ramp = np.stack([x // 2, y, np.zeros_like(x)]).astype(np.uint8)
    crop, random, shares = RandomResizedCrop(scale=(0.2, 0.5), ratio=(0.5, 2.0)), np.random.default_rng(0), []
    for _ in range(200):
        out = crop.cut(ramp, (8, 8), random).astype(float)
        wide = 2 * (out[0, 0, -1] - out[0, 0, 0]) * 8 / 7
        tall = (out[1, -1, 0] - out[1, 0, 0]) * 8 / 7
        shares.append(wide * tall / (200 * 300))
        assert 0.4 < wide / tall < 2.5
    assert 0.18 < min(shares) < 0.25 and 0.45 < max(shares) < 0.54 and abs(np.mean(shares) - 0.35) < 0.02


def test_a_box_that_never_fits_is_the_largest_in_the_middle() -> None:
    tall = np.zeros((1, 100, 10), np.uint8)
    tall[:, 45:55] = 255
    out = RandomResizedCrop(scale=(1.0, 1.0), ratio=(1.0, 1.0)).cut(tall, (10, 10), np.random.default_rng(0))
    assert (out == 255).all()


# -- looks -------------------------------------------------------------------------------------------------------------

PAIRS: dict[str, tuple[Callable[..., np.ndarray], Callable[[Image.Image], Image.Image], int]] = {
    "brightness": (
        lambda x: image_ops.adjust_brightness(x, np.array([1.7])),
        lambda i: ImageEnhance.Brightness(i).enhance(1.7),
        1,
    ),
    "contrast": (
        lambda x: image_ops.adjust_contrast(x, np.array([0.4])),
        lambda i: ImageEnhance.Contrast(i).enhance(0.4),
        1,
    ),
    "color": (
        lambda x: image_ops.adjust_saturation(x, np.array([1.6])),
        lambda i: ImageEnhance.Color(i).enhance(1.6),
        2,
    ),
    "sharpness": (
        lambda x: image_ops.adjust_sharpness(x, np.array([1.9])),
        lambda i: ImageEnhance.Sharpness(i).enhance(1.9),
        2,
    ),
    "autocontrast": (
        lambda x: image_ops.autocontrast(x // 2 + 9),
        lambda i: ImageOps.autocontrast(i.point(lambda v: v // 2 + 9)),
        1,
    ),
    "equalize": (lambda x: image_ops.equalize(x // 3), lambda i: ImageOps.equalize(i.point(lambda v: v // 3)), 0),
    "posterize": (lambda x: image_ops.posterize(x, np.array([3])), lambda i: ImageOps.posterize(i, 3), 0),
    "solarize": (lambda x: image_ops.solarize(x, np.array([99.0])), lambda i: ImageOps.solarize(i, 99), 0),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("channels", [1, 3])
def test_changes_are_what_pillow_does(name: str, channels: int) -> None:
    ours, theirs, within = PAIRS[name]
    for picture in noise(4, channels, 20):
        image = Image.fromarray(picture[0] if channels == 1 else np.ascontiguousarray(picture.transpose(1, 2, 0)))
        made = np.asarray(theirs(image))
        wanted = made[None] if channels == 1 else made.transpose(2, 0, 1)
        np.testing.assert_allclose(ours(picture[None])[0].astype(int), wanted.astype(int), atol=within)


def test_hue_turns_primary_colors_into_one_another() -> None:
    red = np.zeros((1, 3, 1, 1), np.uint8)
    red[0, 0] = 200
    for turn, channel in ((1 / 3, 1), (-1 / 3, 2), (1.0, 0)):
        assert image_ops.adjust_hue(red, np.array([turn]))[0, :, 0, 0].tolist() == [
            200 if c == channel else 0 for c in range(3)
        ]
    np.testing.assert_allclose(image_ops.adjust_hue(noise(), np.zeros(8)).astype(int), noise(), atol=1)


def test_right_angles_and_shifts_move_pixels_exactly() -> None:
    pixels = noise(2)
    np.testing.assert_array_equal(
        image_ops.affine(pixels, angle=np.array([90.0, 0.0]))[0], np.rot90(pixels[0], 1, (1, 2))
    )
    np.testing.assert_array_equal(image_ops.affine(pixels, angle=np.array([90.0, 0.0]))[1], pixels[1])
    right = image_ops.affine(pixels, shift_x=0.25)
    np.testing.assert_array_equal(right[..., 3:], pixels[..., :-3])
    assert (right[..., :3] == 128).all()
    down = image_ops.affine(pixels, shift_y=-0.25)
    np.testing.assert_array_equal(down[..., :-3, :], pixels[..., 3:, :])


def test_a_sheared_column_leans() -> None:
    line = np.zeros((1, 1, 11, 11), np.uint8)
    line[..., 5] = 255
    rows, columns = np.nonzero(image_ops.affine(line, shear_x=0.4)[0, 0] == 255)
    np.testing.assert_array_equal(columns, np.rint(5 - 0.4 * (rows - 5)).astype(int))


def test_jitter_stays_within_its_factors() -> None:
    gray = np.full((500, 3, 2, 2), 100, np.uint8)
    out = ColorJitter(brightness=0.3, contrast=0, saturation=0)(gray, np.random.default_rng(0))
    assert 69 <= out.min() < 75 and 125 < out.max() <= 131
    np.testing.assert_array_equal(
        ColorJitter(brightness=0, contrast=0.9, saturation=0.9)(gray, np.random.default_rng(0)), gray
    )


def test_rand_augment_does_nothing_at_nothing_and_more_at_more() -> None:
    pixels = noise(14 * 20)
    still = [o for i, o in enumerate(OPERATIONS) if i not in (1, 2)]  # these two have no magnitude
    for operation in still:
        np.testing.assert_array_equal(operation(pixels[:2], np.zeros(2)), pixels[:2])
    made = [RandAugment(magnitude=m)(pixels, np.random.default_rng(0)) for m in (1, 5, 10)]
    near, middle, far = (np.abs(one - pixels.astype(float)).mean() for one in made)
    assert near < middle < far
    assert len(OPERATIONS) == 14


def test_erased_boxes_have_the_share_and_the_odds_asked_for() -> None:
    pixels = np.zeros((600, 1, 32, 32), np.uint8)
    out = RandomErasing(p=0.5, scale=(0.1, 0.2))(pixels, np.random.default_rng(0))
    shares = (out > 0).mean((1, 2, 3)) * 256 / 255
    erased = shares[shares > 0]
    assert 250 < len(erased) < 350 and erased.min() > 0.08 and erased.max() < 0.22
    colored = np.arange(3 * 64, dtype=np.uint8).reshape(1, 3, 8, 8)
    mean = RandomErasing(p=1, fill="mean")(colored, np.random.default_rng(0))
    assert set(mean[mean != colored].tolist()) <= {31, 95, 159}


# -- two as one --------------------------------------------------------------------------------------------------------


def test_mixup_is_a_weighted_mean_and_cutmix_a_box() -> None:
    random = np.random.default_rng(0)
    black, white = np.zeros((300, 1, 8, 8), np.float32), np.ones((300, 1, 8, 8), np.float32)
    out, share = MixUp(alpha=1.0)(white, black, random)
    np.testing.assert_allclose(out, np.broadcast_to(share[:, None, None, None], out.shape), rtol=1e-6)
    assert abs(share.mean() - 0.5) < 0.05 and 0.25 < share.std() < 0.33  # uniform: 0.29
    out, share = CutMix()(white, black, random)
    assert set(np.unique(out)) == {0.0, 1.0}
    np.testing.assert_allclose(out.mean((1, 2, 3)), share, rtol=1e-5)
    for picture in out[:20, 0]:
        rows, columns = np.nonzero(picture == 0)
        if len(rows):
            assert (np.ptp(rows) + 1) * (np.ptp(columns) + 1) == len(rows)


def test_labels_are_mixed_as_pictures_are() -> None:
    random = np.random.default_rng(0)
    labels = np.eye(4, dtype=np.float32)[np.arange(40) % 4]
    pictures = np.broadcast_to(labels[:, :, None, None], (40, 4, 8, 8)).copy()  # a picture whose channels say its class
    out, shares = mixed(pictures, labels, (MixUp(alpha=1.0), CutMix()), random)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(out.mean((2, 3)), shares, atol=1e-5)
    assert 0 < (out == np.rint(out)).all((1, 2, 3)).sum() < 40  # some are of boxes
