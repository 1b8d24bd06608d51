"""How pictures are corrupted and reduced, what the labels are, and the simple methods beside the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.ndimage import gaussian_filter

from qkv.core.metrics.pictures import psnr
from qkv.data.media.images import denormalized
from qkv.data.source import Skipped
from qkv.data.synthetic.shapes import Shapes
from qkv.data.task import RandomContext
from qkv.nn.layers.patches import Patches
from qkv.runs.tasks.picture_restoration.metric import tile_starts
from qkv.runs.tasks.picture_restoration.task import RestorationTask, Restore, Upscale

SHAPES = Shapes(size=(32, 32), noise=0.0, train=8)
SEEN = Patches(image=(32, 32), patch=(4, 4), channels=3)
PICTURE = SHAPES.table("test")[0]["image"]


def settled(task: RestorationTask, seen: Patches = SEEN) -> RestorationTask:
    return task.resolve(SHAPES, None, seen)


def cut(task: RestorationTask, training: bool, seed: int = 0, rows: int = 4) -> Any:
    examples = [SHAPES.table("test")[i] for i in range(rows)]
    made = task.items(examples, None, RandomContext(np.random.default_rng(seed), training))
    return task.collate([one for one in made if not isinstance(one, Skipped)], 0)


def random() -> np.random.Generator:
    return np.random.default_rng(0)


def test_labels_are_the_difference_to_the_clean_picture() -> None:
    task = settled(Restore(noise=0.1))
    batch = cut(task, training=False)
    clean = denormalized(batch.arrays["ids"] + batch.labels, task.mean, task.std)
    np.testing.assert_array_equal(clean[0], PICTURE)
    corrupted = denormalized(batch.arrays["ids"], task.mean, task.std)
    assert 19 < psnr(corrupted[0], PICTURE) < 22  # 20 dB, and a bit more if noise is clipped
    assert (batch.counts, batch.tokens, task.tokens) == ({"loss": 4 * 64}, 4 * 65, 65)


def test_noise_differs_by_epoch_in_training_and_never_in_evaluation() -> None:
    task = settled(Restore(noise=0.1, masked=0.2))
    one, other = (cut(task, training=True, seed=seed).arrays["ids"] for seed in (0, 1))
    assert not np.array_equal(one, other)
    one, other = (cut(task, training=False, seed=seed, rows=rows).arrays["ids"] for seed, rows in ((0, 4), (1, 2)))
    np.testing.assert_array_equal(one[:2], other)


def test_noise_has_its_standard_deviation() -> None:
    gray = np.full((3, 200, 200), 128, np.uint8)
    difference = Restore(noise=0.1).corrupt(gray, random()).astype(float) - 128
    assert difference.std() == pytest.approx(25.5, rel=0.01) and abs(difference.mean()) < 0.3


def test_masked_pixels_are_black_in_all_channels() -> None:
    white = np.full((3, 100, 100), 255, np.uint8)
    made = Restore(masked=0.3).corrupt(white, random())
    assert set(np.unique(made)) == {0, 255} and (made == made[:1]).all()
    assert (made[0] == 0).mean() == pytest.approx(0.3, abs=0.02)


def test_blur_is_scipys_and_comes_first() -> None:
    made = Restore(blur=1.5).corrupt(PICTURE, random())
    expected = np.stack([gaussian_filter(channel.astype(np.float32), 1.5) for channel in PICTURE])
    np.testing.assert_array_equal(made, np.rint(expected))
    both = Restore(blur=1.5, masked=0.5).corrupt(PICTURE, random())
    np.testing.assert_array_equal(both[both > 0], made[both > 0])


def test_small_pictures_are_pillows() -> None:
    image = Image.fromarray(PICTURE.transpose(1, 2, 0))
    small = image.resize((16, 16), Image.Resampling.BICUBIC)
    large = np.asarray(small.resize((32, 32), Image.Resampling.BICUBIC)).transpose(2, 0, 1)
    task = Upscale(factor=2)
    np.testing.assert_array_equal(task.reduced(PICTURE), np.asarray(small).transpose(2, 0, 1))
    np.testing.assert_array_equal(task.corrupt(PICTURE, random()), large)
    assert task.enlarged(task.reduced(PICTURE)).shape == PICTURE.shape


@pytest.mark.parametrize(
    ("task", "names"),
    [
        (Restore(noise=0.1), ["the corrupted picture", "a median filter"]),
        (Upscale(), ["bicubic interpolation", "nearest neighbor"]),
    ],
)
def test_baselines_see_what_the_model_sees(task: RestorationTask, names: list[str]) -> None:
    task = settled(task)
    examples = [SHAPES.table("test")[i] for i in range(3)]
    found = task.baselines(SHAPES, examples)
    assert [one.name for one in found] == names
    seen = denormalized(cut(task, training=False, rows=3).arrays["ids"], task.mean, task.std)
    ratios = [psnr(picture, one["image"]) for picture, one in zip(seen, examples, strict=True)]
    assert found[0].metrics["psnr"] == pytest.approx(np.mean(ratios))
    better, worse = (found[1], found[0]) if names[1] == "a median filter" else (found[0], found[1])
    assert better.metrics["psnr"] > worse.metrics["psnr"] + 1 and better.metrics["ssim"] > worse.metrics["ssim"]


def test_settled_tasks_are_kept_in_recipes() -> None:
    task = settled(Restore(noise=0.1))
    assert Restore.from_dict(task.to_dict()) == task and task.patch == (4, 4)


def test_a_preview_draws_both_pictures() -> None:
    task = settled(Restore(noise=0.1))
    lines = task.preview(cut(task, training=False).batch({}), 0, None)
    assert [name for name, _ in lines if name] == ["corrupted", "clean"] and len(lines) > 10


@given(st.integers(8, 300), st.integers(1, 64))
def test_tiles_cover_a_side_and_overlap_by_a_quarter(side: int, tile: int) -> None:
    tile = min(side, tile)
    starts = tile_starts(side, tile)
    assert starts[0] == 0 and starts[-1] == side - tile
    assert all(step <= max(1, tile - tile // 4) for step in np.diff(starts))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Restore(), "nothing is corrupted; give task.noise"),
        (lambda: settled(Upscale(factor=3)), "task.factor=3 does not divide pictures of 32 × 32"),
        (lambda: settled(Restore(noise=0.1), seen=Patches(image=(30, 30), patch=(4, 4))), "leave out some"),
    ],
)
def test_what_is_refused(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_a_pool_of_unreadable_pictures_is_skipped() -> None:
    made = settled(Restore(noise=0.1)).items(
        [{"image": b"none", "where": "a.png"}], None, RandomContext(random(), True)
    )
    assert len(made) == 1 and isinstance(made[0], Skipped)
