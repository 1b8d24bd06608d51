from __future__ import annotations

import json
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from qkv.core.batch import IGNORE
from qkv.data.batching.settings import Batching
from qkv.data.loader.stream import stream
from qkv.data.memory import Memory
from qkv.data.readers.coco_voc import Coco, Voc
from qkv.data.source import Skipped, Source
from qkv.data.synthetic.shapes import Shapes
from qkv.data.task import Item, RandomContext
from qkv.nn.layers.patches import Patches
from qkv.runs.tasks.detection.task import Detect

SEEN = Patches(image=(32, 48), patch=(8, 8), after=5)


def settled(**fields: Any) -> Detect:
    given = {"mean": (0.0,) * 3, "std": (1.0,) * 3, "classes": ("dark", "light"), "flip": False, **fields}
    return Detect(**given).resolve(Shapes(), None, SEEN)


def example(**changes: Any) -> dict[str, Any]:
    """A gray picture (64, 96) with a black and a white object in it."""
    image = np.full((3, 64, 96), 128, np.uint8)
    boxes = np.array([[8, 16, 40, 32], [56, 24, 80, 56]], np.float32)
    for (left, top, right, bottom), value in zip(boxes.astype(int), (0, 255), strict=True):
        image[:, top:bottom, left:right] = value
    return {"image": image, "boxes": boxes, "names": ["dark", "light"], "where": "7.jpg", **changes}


def made(task: Detect, one: dict[str, Any], training: bool = False, seed: int = 0) -> list[Item | Skipped]:
    return task.items([one], None, RandomContext(np.random.default_rng(seed), training))


def seen_boxes(numbers: np.ndarray) -> dict[int, list[float]]:
    """Where black and white are, as shares (center x, center y, width, height)."""
    height, width = numbers.shape[1:]
    found = {}
    for number, there in ((0, numbers[0] < 0.25), (1, numbers[0] > 0.75)):
        if there.any():
            rows, columns = np.flatnonzero(there.any(1)), np.flatnonzero(there.any(0))
            edges = columns[0] / width, rows[0] / height, (columns[-1] + 1) / width, (rows[-1] + 1) / height
            found[number] = [
                (edges[0] + edges[2]) / 2,
                (edges[1] + edges[3]) / 2,
                edges[2] - edges[0],
                edges[3] - edges[1],
            ]
    return found


def test_a_training_picture_is_shown_as_often_as_it_is_cropped() -> None:
    task = settled(crops=3, crop=0.5)
    shown = [item.arrays["ids"] for item in made(task, example(), training=True) if isinstance(item, Item)]
    assert len(shown) == 3 and not any(np.array_equal(a, b) for a, b in pairwise(shown))
    assert len(made(task, example())) == 1


def test_pictures_are_drawn_to_the_models_size_and_boxes_are_shares_of_it() -> None:
    (item,) = made(settled(), example())
    assert isinstance(item, Item) and item.arrays["ids"].shape == (3, 32, 48)
    assert item.targets["classes"].tolist() == [0, 1]
    np.testing.assert_allclose(item.targets["boxes"][0], [24 / 96, 24 / 64, 32 / 96, 16 / 64], atol=1e-6)


@pytest.mark.parametrize(
    "fields", [{"flip": True}, {"vertical_flip": True}, {"crop": 0.6, "flip": True, "vertical_flip": True}]
)
def test_boxes_move_along_with_what_is_in_them(fields: dict[str, Any]) -> None:
    differ = set()
    for seed in range(12):
        (item,) = made(settled(visible=0.01, **fields), example(), training=True, seed=seed)
        assert isinstance(item, Item)
        there = seen_boxes(item.arrays["ids"])
        for number, box in zip(item.targets["classes"], item.targets["boxes"], strict=True):
            np.testing.assert_allclose(box, there[int(number)], atol=0.06)
        differ.add(str(np.round(item.targets["boxes"], 3).tolist()))
    assert len(differ) >= 2


def test_an_object_that_a_crop_hardly_shows_is_none_there() -> None:
    counts = set()
    for seed in range(40):
        (item,) = made(settled(crop=0.4, visible=0.9), example(), training=True, seed=seed)
        assert isinstance(item, Item)
        counts.add(len(item.targets["classes"]))
    assert counts == {0, 1, 2}


BAD = [
    ([[10, 10, 10, 20]], ["dark"], r"object 1 \(dark, .*\) is of no area; correct"),
    ([[10, 20, 20, 10]], ["dark"], "of no area"),
    ([[float("nan"), 0, 20, 10]], ["dark"], "of no area"),
    ([[10, 10, 20, 20], [90, 10, 120, 20]], ["dark", "dark"], r"7\.jpg: object 2 .* in 96 × 64 pixels\) is outside"),
    ([[10, 10, 20, 20]], ["drak"], r"of unknown class; did you mean 'dark'.*task\.on_error=skip"),
]


@pytest.mark.parametrize(("boxes", "names", "said"), BAD)
def test_bad_objects_are_refused_by_file_and_number_or_counted(boxes: Any, names: list[str], said: str) -> None:
    one = example(boxes=boxes, names=names)
    with pytest.raises(ValueError, match=said):
        made(settled(), one)
    item, reason = made(settled(on_error="skip"), one)
    assert isinstance(item, Item) and len(item.targets["classes"]) == len(boxes) - 1
    assert isinstance(reason, Skipped) and reason.startswith("objects ")


def test_a_box_that_is_a_pixel_too_large_is_cut_at_the_edge() -> None:
    (item,) = made(settled(), example(boxes=[[-0.5, 0, 97, 64]], names=["dark"]))
    assert isinstance(item, Item)
    np.testing.assert_allclose(item.targets["boxes"], [[0.5, 0.5, 1, 1]])


def test_a_batch_pads_what_has_fewer_objects_and_counts_the_others() -> None:
    task = settled()
    items = [one for boxes in (2, 0, 1) for one in made(task, _first(boxes)) if isinstance(one, Item)]
    cut = task.collate(items, 0)
    assert cut.targets["classes"].tolist() == [[0, 1], [IGNORE, IGNORE], [0, IGNORE]]
    assert cut.targets["boxes"].shape == (3, 2, 4) and cut.counts == {"class": 3, "box": 3, "giou": 3}
    assert (cut.targets["boxes"][..., 2:] > 0).all()
    shown = task.preview(cut.batch({}), 0, None)
    objects = [text for name, text in shown if name == "object"]
    assert objects[0] == "dark at 0.250 0.375 0.333 0.250 (center, width and height)" and len(objects) == 2


def _first(count: int) -> dict[str, Any]:
    one = example()
    return {**one, "boxes": one["boxes"][:count], "names": one["names"][:count]}


def test_a_stream_of_made_pictures() -> None:
    source = Shapes(size=(32, 32), train=30, most=2)
    task = Detect().resolve(source, None, SEEN)
    assert task.classes == ("circle", "cross", "square", "triangle") and task.tokens == 4 * 6 + 1 + 5
    with stream(source, None, Batching(tokens=10 * task.tokens, workers=0), seq2seq=False, task=task) as batches:
        batch = next(batches)
    assert batch.inputs["ids"].shape == (10, 3, 32, 48) and batch.counts["class"] == 10
    assert batch.counts["box"] == int((batch.targets["classes"] >= 0).sum())


# -- pictures that are turned by EXIF ----------------------------------------------------------------------------------


def turned_file(path: Path, number: int) -> Path:
    """The picture of `example` as a file that a viewer turns."""
    tags = Image.Exif()
    tags[0x0112] = number
    Image.fromarray(example()["image"].transpose(1, 2, 0)).save(path, exif=tags)
    return path


def assert_boxes_are_on_their_objects(source: Source, **fields: Any) -> None:
    task = settled(**fields)
    (one,) = source.open("train")
    (item,) = made(task, one)
    assert isinstance(item, Item)
    there = seen_boxes(item.arrays["ids"])
    for number, box in zip(item.targets["classes"], item.targets["boxes"], strict=True):
        np.testing.assert_allclose(box, there[int(number)], atol=0.04)


def coco(folder: Path, number: int, **sides: int) -> Coco:
    turned_file(folder / "7.png", number)
    boxes = [[left, top, right - left, bottom - top] for left, top, right, bottom in example()["boxes"].tolist()]
    content = {
        "images": [{"id": 1, "file_name": "7.png", **sides}],
        "annotations": [{"image_id": 1, "category_id": i, "bbox": box} for i, box in enumerate(boxes)],
        "categories": [{"id": i, "name": name} for i, name in enumerate(("dark", "light"))],
    }
    (folder / "a.json").write_text(json.dumps(content))
    return Coco(path=str(folder / "a.json"))


def voc(folder: Path, number: int, width: int, height: int) -> Voc:
    (folder / "Annotations").mkdir(parents=True)
    (folder / "JPEGImages").mkdir()
    turned_file(folder / "JPEGImages" / "7.png", number)
    objects = "".join(
        f"<object><name>{name}</name><bndbox><xmin>{a}</xmin><ymin>{b}</ymin><xmax>{c}</xmax><ymax>{d}</ymax></bndbox></object>"
        for name, (a, b, c, d) in zip(("dark", "light"), example()["boxes"].tolist(), strict=True)
    )
    size = f"<size><width>{width}</width><height>{height}</height></size>"
    (folder / "Annotations" / "7.xml").write_text(f"<annotation>{size}{objects}</annotation>")
    return Voc(path=str(folder))


@pytest.mark.parametrize("number", range(1, 9))
def test_boxes_of_stored_pixels_turn_with_their_picture(number: int, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_boxes_are_on_their_objects(coco(tmp_path, number, width=96, height=64))
        assert_boxes_are_on_their_objects(coco(tmp_path, number))
        assert_boxes_are_on_their_objects(voc(tmp_path / "voc", number, 96, 64))


def test_boxes_of_a_turned_picture_of_pillow_turn_with_it(tmp_path: Path) -> None:
    picture = Image.open(turned_file(tmp_path / "7.png", 8))
    rows = [{**example(), "image": picture, "boxes": example()["boxes"].tolist()}]
    with pytest.warns(UserWarning, match="turned by its EXIF data"):
        assert_boxes_are_on_their_objects(Memory.of(rows))


@pytest.mark.parametrize("number, sides", [(6, {"width": 64, "height": 96}), (3, {})])
def test_boxes_of_the_picture_as_it_is_shown_stay(number: int, sides: dict[str, int], tmp_path: Path) -> None:
    source = coco(tmp_path, number, **sides)
    (one,) = (source if sides else source.replace({"drawn_on": "shown"})).open("train")
    item, *_ = made(settled(on_error="skip"), one)  # a box is outside of the picture on its side
    assert isinstance(item, Item)
    height, width = (96, 64) if number == 6 else (64, 96)
    kept = [box for box in example()["boxes"] if box[2] <= width and box[3] <= height]
    wanted = [[(a + c) / 2 / width, (b + d) / 2 / height, (c - a) / width, (d - b) / height] for a, b, c, d in kept]
    np.testing.assert_allclose(item.targets["boxes"], wanted, atol=1e-6)


@pytest.mark.parametrize("sides", [{"width": 48, "height": 32}, {"width": 97, "height": 64}])
def test_boxes_of_a_picture_of_another_size_are_told_or_skipped(sides: dict[str, int], tmp_path: Path) -> None:
    one = coco(tmp_path, 1, **sides).open("train")[0]
    with pytest.raises(
        ValueError, match=rf"7\.png: its annotations are of a picture of {sides['width']} × .*on_error=skip"
    ):
        made(settled(), one)
    assert made(settled(on_error="skip"), one) == ["annotated in another size"]
    with pytest.raises(ValueError, match=r"7: its annotations are of a picture of 48 × 32"):
        made(settled(), voc(tmp_path / "voc", 1, 48, 32).open("train")[0])


def test_a_voc_size_of_zero_is_unknown(tmp_path: Path) -> None:
    assert_boxes_are_on_their_objects(voc(tmp_path / "voc", 1, 0, 0))
