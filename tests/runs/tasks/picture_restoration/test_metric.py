"""PSNR and SSIM of what a model adds to corrupted pictures, and the pictures of the report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from qkv.core.batch import Batch
from qkv.core.metrics.pictures import psnr, ssim
from qkv.data.media.images import normalized
from qkv.look.pictures import draw
from qkv.nn.layers.patches import patchify
from qkv.runs.tasks.picture_restoration.metric import RestorationMetric

SCALE = (0.5, 0.4, 0.6), (0.2, 0.3, 0.25)
TRUTH = np.random.default_rng(0).integers(0, 256, (5, 3, 12, 16), np.uint8)
NOISY = (TRUTH.astype(int) + np.random.default_rng(1).integers(-40, 41, TRUTH.shape)).clip(0, 255).astype(np.uint8)


class Painter(torch.nn.Module):
    """A model with a head of pixels that says what it is told."""

    def __init__(self, said: Tensor, kind: str = "pixels", normalized: bool = False) -> None:
        super().__init__()
        self.said, self.spec, self.head = said, self, self
        self.kind, self.normalized = kind, normalized

    def forward(self, **inputs: Any) -> Tensor:
        return self.said


def judged(added: Tensor, **head: Any) -> RestorationMetric:
    x, y = (torch.from_numpy(normalized(one, *SCALE)) for one in (NOISY, TRUTH))
    metric = RestorationMetric(*SCALE, (4, 4), "restored")
    texts = tuple({"where": str(i)} for i in range(5))
    metric.evaluate(Painter(patchify(added, (4, 4), "last"), **head), Batch({"ids": x}, y - x, texts=texts))
    return metric


def test_a_model_that_adds_nothing_has_the_figures_of_its_input() -> None:
    found = judged(torch.zeros(5, 3, 12, 16)).compute()
    for name, function in (("psnr", psnr), ("ssim", ssim)):
        expected = np.mean([function(x, y) for x, y in zip(NOISY, TRUTH, strict=True)])
        assert found[name].value == pytest.approx(expected)
        assert found[name].details == f"of the input {expected:.4g}"


def test_a_model_that_adds_the_difference_restores_the_pictures() -> None:
    x, y = (torch.from_numpy(normalized(one, *SCALE)) for one in (NOISY, TRUTH))
    found = judged(y - x).compute()
    assert found["psnr"].value == pytest.approx(psnr(TRUTH[0], TRUTH[0])) and found["ssim"].value == pytest.approx(1)


def test_samples_are_drawn_before_restored_and_clean() -> None:
    metric = judged(torch.zeros(5, 3, 12, 16))
    (sample, *_) = metric.samples(2)
    assert sample["output"].startswith("PSNR ") and " → " in sample["output"]
    page = str(draw(sample["picture"]))
    assert page.count("<img") == 3
    assert page.index(">before<") < page.index(">model<") < page.index(">clean<")
    extremes = metric.extremes()
    assert extremes is not None and extremes.by == "psnr"
    assert extremes.best[0]["score"] >= extremes.worst[0]["score"]


@pytest.mark.parametrize(
    ("head", "said"),
    [({"kind": "image-classifier"}, "the kind pixels"), ({"normalized": True}, "model.normalized=false")],
)
def test_other_heads_are_refused(head: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        judged(torch.zeros(5, 3, 12, 16), **head)
