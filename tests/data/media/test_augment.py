"""What augmentation does to pictures, held to what its papers say, and to Pillow if that has the same change."""

from __future__ import annotations

import numpy as np
import pytest

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
