from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from qkv.core.batch import IGNORE
from qkv.data.batching.settings import Batching
from qkv.data.loader.stream import stream
from qkv.data.source import Source, Split, Table
from qkv.data.synthetic.shapes import Shapes
from qkv.data.task import RandomContext
from qkv.nn.layers.embedding import Embedding
from qkv.nn.layers.patches import Patches
from qkv.runs.tasks.segmentation.task import Segment, tiles


class Given(Source, kind="given-masks-test"):
    given: tuple[Any, ...]

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return self.given


def example(
    height: int = 40, width: int = 52, values: tuple[int, ...] = (0, 255), where: str = "a.png"
) -> dict[str, Any]:
    """A picture whose gray says which class each pixel has, so one can be told from the other."""
    random = np.random.default_rng(height * width)
    classes = random.integers(len(values), size=(height, width))
    image = np.repeat((40 + 60 * classes)[None], 3, 0).astype(np.uint8)
    return {"image": image, "mask": np.array(values, np.uint8)[classes], "where": where}


def settled(examples: list[dict[str, Any]], image: tuple[int, int] = (16, 24), **fields: Any) -> Segment:
    task = Segment(mean=(0.5,) * 3, std=(0.5,) * 3, **fields)
    return task.resolve(Given.model_construct(given=tuple(examples)), None, Patches(image=image, patch=(8, 8)))


def classes_seen(numbers: np.ndarray) -> np.ndarray:
    """The class that a pixel's gray says."""
    return np.rint(((numbers[0] * 0.5 + 0.5) * 255 - 40) / 60).astype(int)


def items(task: Segment, one: dict[str, Any], training: bool, seed: int = 0) -> list[Any]:
    return task.items([one], None, RandomContext(np.random.default_rng(seed), training))


def test_what_masks_hold_decides_the_classes() -> None:
    assert settled([example()]).values == (0, 255)
    assert settled([example(values=(0, 1, 2))]).values == (0, 1, 2)
    assert settled([example(values=(0, 1, 255))]).values == (0, 1)
    assert settled([example(values=(0, 1, 255))], classes=("a", "b", "c")).n_labels == 3
    assert settled([example(values=(7, 9))], values=(7, 9)).classes == ("0", "1")
    assert Segment().resolve(Shapes(), None, Patches(image=(64, 64))).classes[:2] == ("background", "circle")


@pytest.mark.parametrize("seed", range(8))
def test_crops_and_turns_are_the_same_for_picture_and_mask(seed: int) -> None:
    one = example()
    task = settled([one], crops=3, rotate=True)
    made = items(task, one, training=True, seed=seed)
    assert len(made) == 3
    for item in made:
        assert item.arrays["ids"].shape == (3, 16, 24) and item.labels.shape == (16, 24)
        assert (classes_seen(item.arrays["ids"]) == item.labels).all()
    assert (made[0].labels != made[1].labels).any()


def test_tiles_of_a_large_picture_say_each_pixel_once() -> None:
    one = example(53, 61, (0, 1, 255))
    whole, times = np.full((53, 61), IGNORE), np.zeros((53, 61), int)
    made = items(settled([one]), one, training=False)
    assert len(made) > 6
    for item in made:
        top, left, size = item.example["place"]
        assert size == (53, 61)
        own = item.labels != IGNORE
        whole[top : top + 16, left : left + 24][own] = item.labels[own]
        times[top : top + 16, left : left + 24] += own
        assert (classes_seen(item.arrays["ids"])[own] == item.labels[own]).all()
    void = one["mask"] == 255
    assert (times[~void] == 1).all() and (times[void] == 0).all()
    assert (whole[~void] == one["mask"][~void]).all()


@given(st.integers(1, 300), st.integers(1, 64), st.integers(0, 63))
def test_tiles_cover_a_side_and_own_each_place_once(length: int, side: int, overlap: int) -> None:
    overlap, length = min(overlap, side - 1), max(length, side)
    found = tiles(length, side, overlap)
    owned = [place for tile in found for place in range(tile.start + tile.own.start, tile.start + tile.own.stop)]
    assert owned == list(range(length))
    assert all(0 <= tile.own.start < tile.own.stop <= side and tile.start + side <= length for tile in found)
    assert all(b.start - a.start <= side - overlap for a, b in pairwise(found))


def test_a_small_picture_stands_on_what_is_not_counted() -> None:
    one = example(10, 30)
    for training in (True, False):
        for item in items(settled([one]), one, training):
            assert item.labels.shape == (16, 24) and (item.labels == IGNORE).any()
            own = item.labels != IGNORE
            assert (classes_seen(item.arrays["ids"])[own] == item.labels[own]).all()


def test_batches_hold_what_a_model_and_a_loss_take() -> None:
    source = Shapes(size=(32, 32), train=16, validation=3)
    task = Segment().resolve(source, None, Patches(image=(16, 16), patch=(4, 4)))
    batch = next(iter(stream(source, None, Batching(tokens=17 * 8, workers=0), seq2seq=False, task=task)))
    assert batch.inputs["ids"].shape == (8, 3, 16, 16) and batch.labels is not None
    assert batch.labels.shape == (8, 16, 16) and batch.counts == {"loss": 8 * 256} and batch.tokens == 8 * 17
    assert abs(batch.inputs["ids"].mean()) < 1 and 0.3 < batch.inputs["ids"].std() < 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mask": np.zeros((9, 9), np.uint8)}, r"a\.png: the mask is of 9 × 9 pixels, the picture of 52 × 40"),
        ({"mask": np.full((40, 52), 3, np.uint8)}, r"a\.png: the mask holds 3, and the classes are 0, 255; give all"),
        ({"mask": None}, r"a\.png has no mask"),
        ({"image": None}, r"a\.png has no picture"),
    ],
)
def test_what_can_not_be_learned_from_is_told_by_file(change: dict[str, Any], said: str) -> None:
    task = settled([example()])
    with pytest.raises(ValueError, match=said):
        items(task, {**example(), **change}, training=True)


def test_a_damaged_picture_is_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\nand no more")
    (made,) = items(settled([example()]), {**example(), "image": tmp_path / "a.png"}, training=True)
    assert made.startswith("whose picture is")


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"classes": ["a"], "values": [0, 1]}, "1 classes and 2 values"), ({"values": [0, 0]}, "different numbers")],
)
def test_settings_that_do_not_fit_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Segment.from_dict({"kind": "segment", **fields})


def test_a_model_that_reads_no_pictures_is_refused() -> None:
    with pytest.raises(ValueError, match="on pictures, and this model reads none"):
        Segment().resolve(Shapes(), None, Embedding())


def test_views_by_right_angles_are_of_squares() -> None:
    assert settled([example()], image=(16, 16), views=8).views == 8
    with pytest.raises(ValueError, match="turns tiles by right angles, and these are 16 × 24; take at most 4"):
        settled([example()], views=8)


# -- pictures that are turned by EXIF ----------------------------------------------------------------------------------


def turned_file(path: Path, pixels: np.ndarray, number: int) -> Path:
    tags = Image.Exif()
    tags[0x0112] = number
    Image.fromarray(pixels).save(path, exif=tags)
    return path


@pytest.mark.filterwarnings("ignore:.*turned by its EXIF")
@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("both", [False, True], ids=["the picture", "and its mask"])
def test_a_mask_turns_with_its_picture(number: int, both: bool, tmp_path: Path) -> None:
    one = example(16, 24)
    mask = turned_file(tmp_path / "m.png", one["mask"], number if both else 1)
    read = {**one, "image": turned_file(tmp_path / "i.png", one["image"].transpose(1, 2, 0), number), "mask": mask}
    for one_of in (read, {**read, "mask": mask.read_bytes()}, {**read, "mask": one["mask"]}):
        task = settled([example()], flip=False)
        for item in items(task, one_of, training=False):
            own = item.labels != IGNORE
            np.testing.assert_array_equal(item.labels[own], classes_seen(item.arrays["ids"])[own])


def test_a_mask_of_the_picture_as_it_is_shown_stays(tmp_path: Path) -> None:
    one = example(16, 24)
    picture = turned_file(tmp_path / "i.png", one["image"].transpose(1, 2, 0), 6)
    shown = np.ascontiguousarray(np.rot90(one["mask"], -1))
    task = settled([example()], flip=False)
    for item in items(task, {**one, "image": picture, "mask": shown}, training=False):
        own = item.labels != IGNORE
        np.testing.assert_array_equal(item.labels[own], classes_seen(item.arrays["ids"])[own])
