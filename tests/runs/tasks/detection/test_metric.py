from __future__ import annotations

import contextlib
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from qkv.core.batch import IGNORE, Batch
from qkv.data.readers.coco_voc import Coco
from qkv.data.task import Item, RandomContext
from qkv.look.pictures import draw
from qkv.nn.layers.boxes import centered
from qkv.nn.layers.patches import Patches
from qkv.nn.models.heads.vision import Objects
from qkv.runs.tasks.detection.metric import BoxMetric, Detections, box_f1
from qkv.runs.tasks.detection.task import Detect

PLAIN = (0.0,) * 3, (1.0,) * 3


def batch_of(classes: Tensor, edges: Tensor) -> Batch:
    about: list[dict[str, Any]] = [{"where": f"{i}.jpg", "size": (200, 300)} for i in range(len(classes))]
    targets = {"classes": classes, "boxes": centered(edges)}
    return Batch({"ids": torch.rand(len(classes), 3, 16, 16)}, targets=targets, texts=tuple(about))


def said(classes: list[list[tuple[int, float]]], edges: Tensor, labels: int = 2) -> Objects:
    """Detections of a class, each so sure; −1 is no object."""
    logits = torch.full((*edges.shape[:2], labels + 1), -20.0)
    for row, found in enumerate(classes):
        for i, (number, sure) in enumerate(found):
            share = torch.full((labels + 1,), 1e-6)
            share[number] = sure
            share[-1] = 1 - sure if number >= 0 else 1.0
            logits[row, i] = share.log()
    return Objects(logits, centered(edges))


TRUTH = torch.tensor([[[0.1, 0.1, 0.4, 0.5], [0.5, 0.5, 0.9, 0.9]], [[0.2, 0.2, 0.6, 0.6], [0, 0, 1, 1]]])
CLASSES = torch.tensor([[0, 1], [0, IGNORE]])


def test_everything_found_is_1_and_what_is_surely_wrong_costs() -> None:
    metric = BoxMetric(("a", "b"), *PLAIN)
    metric.update(said([[(0, 0.9), (1, 0.8)], [(0, 0.7), (-1, 0.0)]], TRUTH), batch_of(CLASSES, TRUTH))
    found = metric.compute()
    assert found["map"].value == pytest.approx(1) and found["map50"].value == pytest.approx(1)
    metric = BoxMetric(("a", "b"), *PLAIN)
    metric.update(said([[(1, 0.9), (0, 0.8)], [(1, 0.7), (-1, 0.0)]], TRUTH), batch_of(CLASSES, TRUTH))
    assert metric.compute()["map50"].value == pytest.approx(0, abs=1e-6)


def test_a_box_of_iou_0_7_counts_at_0_5_alone() -> None:
    near = TRUTH.clone()
    near[..., 2] = near[..., 0] + 0.7 * (near[..., 2] - near[..., 0])  # 70 % of each, within it
    metric = BoxMetric(("a", "b"), *PLAIN)
    metric.update(said([[(0, 0.9), (1, 0.8)], [(0, 0.7), (-1, 0.0)]], near), batch_of(CLASSES, TRUTH))
    found = metric.compute()
    assert found["map50"].value == pytest.approx(1)
    assert found["map"].value == pytest.approx(0.45, abs=0.06)  # 0.5 … 0.65, and perhaps 0.7, of ten thresholds


def test_average_precision_is_the_area_under_its_curve() -> None:
    """The surest detection finds one of two objects, the next none, the third the other: 1 up to recall ½, then ⅔."""
    truth = torch.tensor([[[0.1, 0.1, 0.3, 0.3], [0.6, 0.6, 0.9, 0.9]]])
    made = torch.tensor([[[0.1, 0.1, 0.3, 0.3], [0.3, 0.7, 0.5, 0.9], [0.6, 0.6, 0.9, 0.9]]])
    metric = BoxMetric(("a",), *PLAIN)
    metric.update(said([[(0, 0.9), (0, 0.8), (0, 0.7)]], made, labels=1), batch_of(torch.tensor([[0, 0]]), truth))
    assert metric.compute()["map50"].value == pytest.approx((51 + 50 * 2 / 3) / 101, abs=1e-3)


def test_what_is_shown() -> None:
    metric = BoxMetric(("a", "<b>"), *PLAIN)
    metric.update(said([[(0, 0.9), (1, 0.3)], [(0, 0.7), (-1, 0.0)]], TRUTH), batch_of(CLASSES, TRUTH))
    first, second = metric.samples(5)
    assert (first["source"], first["target"], first["output"]) == ("0.jpg", "1 a, 1 <b>", "1 a")
    assert second["output"] == second["target"] == "1 a"
    assert len(first["picture"]["truth"]) == 2 and len(first["picture"]["made"]) == 1
    page = str(draw(first["picture"]))
    assert page.count("<rect") == 3 and "&lt;b&gt;" in page and "<b>" not in page and "a 0.90" in page


def test_f1_of_a_picture_matches_each_object_once() -> None:
    classes, edges = np.array([0, 1]), TRUTH[0].numpy()

    def score(numbers: list[int], boxes: list[int]) -> float:
        found = Detections(np.array(numbers, np.int64), edges[boxes].reshape(-1, 4), np.full(len(numbers), 0.9))
        return box_f1((classes, edges), found)

    assert score([0, 1], [0, 1]) == 1
    assert score([1, 0], [0, 1]) == 0  # the places are right, the classes are not
    assert score([0, 0], [0, 0]) == 0.5  # two detections of one object
    assert score([], []) == 0
    nothing = np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
    assert math.isnan(box_f1(nothing, Detections(*nothing, np.zeros(0, np.float32))))


def test_the_best_and_the_worst_pictures() -> None:
    metric = BoxMetric(("a", "b"), *PLAIN)
    metric.update(said([[(0, 0.9), (1, 0.3)], [(0, 0.7), (-1, 0.0)]], TRUTH), batch_of(CLASSES, TRUTH))
    extremes = metric.extremes()
    assert extremes is not None and extremes.by == "box_f1"
    assert [(one["source"], one["score"]) for one in extremes.best] == [("1.jpg", 1.0)]
    assert [(one["source"], one["score"]) for one in extremes.worst] == [("0.jpg", pytest.approx(2 / 3))]


def test_pictures_without_objects_have_no_precision() -> None:
    metric = BoxMetric(("a",), *PLAIN)
    metric.update(said([[(0, 0.9)]], TRUTH[:1, :1], labels=1), batch_of(torch.tensor([[IGNORE]]), TRUTH[:1, :1]))
    assert metric.compute() == {}


def made_coco(folder: Path, random: np.random.Generator) -> dict[str, Any]:
    """Twelve pictures of 100 × 80 with objects of two classes, every third of which is a crowd."""
    from PIL import Image

    boxes = [[*random.uniform(0, 40, 2).round(1), *random.uniform(15, 40, 2).round(1)] for _ in range(60)]
    whole = {
        "images": [{"id": n, "file_name": f"{n}.png", "width": 100, "height": 80} for n in range(12)],
        "annotations": [
            {"id": n + 1, "image_id": n % 12, "category_id": 1 + n % 2, "bbox": box, "area": box[2] * box[3]}
            | {"iscrowd": int(n % 3 == 0)}
            for n, box in enumerate(boxes)
        ],
        "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}],
    }
    for n in range(12):
        Image.new("RGB", (100, 80)).save(folder / f"{n}.png")
    (folder / "all.json").write_text(json.dumps(whole))
    return whole


def official(whole: dict[str, Any], detections: list[dict[str, Any]]) -> list[float]:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        known = COCO()
        known.dataset = {"info": {}, **whole}
        known.createIndex()
        judged = COCOeval(known, known.loadRes(detections), "bbox")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    return [float(judged.stats[0]), float(judged.stats[1])]


def test_crowds_are_ignored_as_by_pycocotools_from_the_file_to_the_metric(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    whole = made_coco(tmp_path, random)
    path = str(tmp_path / "all.json")
    source = Coco(path=path, validation_path=path, test_path=path)
    task = Detect(mean=(0.0,) * 3, std=(1.0,) * 3, flip=False)
    task = task.resolve(source, None, Patches(image=(32, 48), patch=(8, 8)))
    metric, detections = BoxMetric(task.classes, *PLAIN), []
    for number, example in enumerate(source.table("test")):
        (item,) = task.items([example], None, RandomContext(random, training=False))
        assert isinstance(item, Item) and len(item.targets["classes"]) == sum(
            not one["iscrowd"] for one in whole["annotations"] if one["image_id"] == number
        )
        own = [one for one in whole["annotations"] if one["image_id"] == number]
        left_top = np.array([one["bbox"] for one in own]) + random.normal(0, 2, (len(own), 4))  # found nearly
        twice = np.concatenate([left_top, left_top[::2] + 1])  # some of them again
        classes = [one["category_id"] - 1 for one in (*own, *own[::2])]
        sure = random.uniform(0.1, 0.9, len(twice))
        edges = np.concatenate([twice[:, :2], twice[:, :2] + twice[:, 2:]], 1) / [100, 80, 100, 80]
        outputs = said([list(zip(classes, sure.tolist(), strict=True))], torch.tensor(edges, dtype=torch.float32)[None])
        targets = {name: torch.as_tensor(part)[None] for name, part in item.targets.items()}
        batch = Batch({"ids": torch.rand(1, 3, 16, 16)}, targets=targets, texts=(item.example,))
        metric.update(outputs, batch)
        detections += [
            {"image_id": number, "category_id": k + 1, "bbox": box.tolist(), "score": float(np.float32(score))}
            for k, box, score in zip(classes, twice, sure, strict=True)
        ]
    found, wanted = metric.compute(), official(whole, detections)
    assert [found["map"].value, found["map50"].value] == pytest.approx(wanted, abs=2e-3)
    without = {**whole, "annotations": [one for one in whole["annotations"] if not one["iscrowd"]]}
    assert official(without, detections)[1] < wanted[1] - 0.05  # what leaving crowds out would say
    assert "40 objects and 20 ignored" in found["map"].details


def test_what_is_found_on_a_difficult_object_counts_not_at_all() -> None:
    truth = torch.tensor([[[0.1, 0.1, 0.3, 0.3]]])
    made = torch.tensor([[[0.6, 0.6, 0.9, 0.9], [0.6, 0.6, 0.9, 0.88], [0.6, 0.6, 0.7, 0.7], [0.1, 0.1, 0.3, 0.3]]])
    values = []
    for crowd in (False, True):
        metric = BoxMetric(("a",), *PLAIN)
        batch = batch_of(torch.tensor([[0]]), truth)
        batch.texts[0]["ignored"] = [(0, np.array([0.6, 0.6, 0.9, 0.9], np.float32), crowd)]
        metric.update(said([[(0, 0.9), (0, 0.8), (0, 0.7), (0, 0.6)]], made, labels=1), batch)
        values.append(metric.compute()["map50"].value)
    assert values == pytest.approx([0.5, 1])  # the small one lies in a crowd, but has no IoU of a half


def test_nothing_found_is_0() -> None:
    metric = BoxMetric(("a",), *PLAIN)
    metric.update(said([[]], torch.zeros(1, 0, 4), labels=1), batch_of(torch.tensor([[0]]), TRUTH[:1, :1]))
    assert metric.compute()["map"].value == 0
