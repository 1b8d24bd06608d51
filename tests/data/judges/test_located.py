from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.core.batch import IGNORE, Batch
from qkv.core.boxes import centered
from qkv.data.judges.located import Located
from qkv.look.pictures import draw
from qkv.model.vision import Objects

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
    judge = Located(("a", "b"), *PLAIN)
    judge.add(said([[(0, 0.9), (1, 0.8)], [(0, 0.7), (-1, 0.0)]], TRUTH), batch_of(CLASSES, TRUTH))
    found = judge.found()
    assert found["map"].value == pytest.approx(1) and found["map50"].value == pytest.approx(1)
    judge = Located(("a", "b"), *PLAIN)
    judge.add(said([[(1, 0.9), (0, 0.8)], [(1, 0.7), (-1, 0.0)]], TRUTH), batch_of(CLASSES, TRUTH))
    assert judge.found()["map50"].value == pytest.approx(0, abs=1e-6)


def test_a_box_of_iou_0_7_counts_at_0_5_alone() -> None:
    near = TRUTH.clone()
    near[..., 2] = near[..., 0] + 0.7 * (near[..., 2] - near[..., 0])  # 70 % of each, within it
    judge = Located(("a", "b"), *PLAIN)
    judge.add(said([[(0, 0.9), (1, 0.8)], [(0, 0.7), (-1, 0.0)]], near), batch_of(CLASSES, TRUTH))
    found = judge.found()
    assert found["map50"].value == pytest.approx(1)
    assert found["map"].value == pytest.approx(0.45, abs=0.06)  # 0.5 … 0.65, and perhaps 0.7, of ten thresholds


def test_average_precision_is_the_area_under_its_curve() -> None:
    """The surest detection finds one of two objects, the next none, the third the other: 1 up to recall ½, then ⅔."""
    truth = torch.tensor([[[0.1, 0.1, 0.3, 0.3], [0.6, 0.6, 0.9, 0.9]]])
    made = torch.tensor([[[0.1, 0.1, 0.3, 0.3], [0.3, 0.7, 0.5, 0.9], [0.6, 0.6, 0.9, 0.9]]])
    judge = Located(("a",), *PLAIN)
    judge.add(said([[(0, 0.9), (0, 0.8), (0, 0.7)]], made, labels=1), batch_of(torch.tensor([[0, 0]]), truth))
    assert judge.found()["map50"].value == pytest.approx((51 + 50 * 2 / 3) / 101, abs=1e-3)


def test_what_is_shown() -> None:
    judge = Located(("a", "<b>"), *PLAIN)
    judge.add(said([[(0, 0.9), (1, 0.3)], [(0, 0.7), (-1, 0.0)]], TRUTH), batch_of(CLASSES, TRUTH))
    first, second = judge.samples(5)
    assert (first["source"], first["target"], first["output"]) == ("0.jpg", "1 a, 1 <b>", "1 a")
    assert second["output"] == second["target"] == "1 a"
    assert len(first["picture"]["truth"]) == 2 and len(first["picture"]["made"]) == 1
    page = str(draw(first["picture"]))
    assert page.count("<rect") == 3 and "&lt;b&gt;" in page and "<b>" not in page and "a 0.90" in page


def test_pictures_without_objects_have_no_precision() -> None:
    judge = Located(("a",), *PLAIN)
    judge.add(said([[(0, 0.9)]], TRUTH[:1, :1], labels=1), batch_of(torch.tensor([[IGNORE]]), TRUTH[:1, :1]))
    assert judge.found() == {}
