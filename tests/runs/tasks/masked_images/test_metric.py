"""Explained variance of reconstructed pixels, and the pictures of samples."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.core.batch import Batch
from qkv.core.layout import Grid
from qkv.look.pictures import draw
from qkv.nn.layers.patches import masked_layout, patchify
from qkv.runs.tasks.masked_images.metric import ReconstructionMetric


class Painter(torch.nn.Module):
    """Says what it was told to for each patch."""

    def __init__(self, said: Tensor, normalized: bool = False) -> None:
        super().__init__()
        self.said, self.spec, self.head = said, self, self
        self.patch, self.normalized = (2, 2), normalized

    def forward(self, **inputs: Any) -> Tensor:
        return self.said

    def hidden_patches(self, layout: Any) -> Tensor:
        from qkv.nn.models.heads.vision import PixelDecoderHead

        return PixelDecoderHead.hidden_patches(layout)


PIXELS = torch.randn(5, 3, 4, 8, generator=torch.Generator().manual_seed(0))


TRUTH = patchify(PIXELS, (2, 2), "last")


def judged(said: Tensor, layout: Any, normalized: bool = False) -> ReconstructionMetric:
    metric = ReconstructionMetric((0.5,) * 3, (0.2,) * 3)
    inputs = {"ids": PIXELS} | ({"layout": layout} if layout is not None else {})
    metric.evaluate(Painter(said, normalized), Batch(inputs, PIXELS, texts=tuple({"where": str(i)} for i in range(5))))
    return metric


@pytest.mark.parametrize("masked", [True, False])
def test_knowing_all_is_1_and_knowing_the_mean_is_0(masked: bool) -> None:
    layout = masked_layout(Grid(2, 4, 1), torch.rand(5, 8), 0.75) if masked else None
    hidden = torch.ones(5, 8, dtype=torch.bool) if layout is None else Painter(TRUTH).hidden_patches(layout).bool()
    assert judged(TRUTH, layout).compute()["explained"].value == pytest.approx(1)
    mean = TRUTH[hidden].unflatten(-1, (4, 3)).mean((0, 1)).repeat(4).expand_as(TRUTH)
    assert judged(mean, layout).compute()["explained"].value == pytest.approx(0, abs=1e-5)
    wrong = TRUTH.clone()
    wrong[~hidden] = 100  # which the loss is not on
    assert judged(wrong, layout).compute()["explained"].value == pytest.approx(1)


def test_normalized_patches_are_set_back() -> None:
    mean, std = TRUTH.mean(-1, keepdim=True), (TRUTH.var(-1, keepdim=True) + 1e-6).sqrt()
    found = judged((TRUTH - mean) / std, None, normalized=True).compute()["explained"]
    assert found.value == pytest.approx(1) and "taken from the truth" in found.details


def test_samples_show_what_was_seen_made_and_true() -> None:
    layout = masked_layout(Grid(2, 4, 1), torch.rand(5, 8), 0.5)
    sample = judged(TRUTH, layout).samples(2)[0]
    assert sample["picture"]["made"] == sample["picture"]["truth"] != sample["picture"]["seen"]
    json.dumps(sample)
    assert str(draw(sample["picture"])).count("<figcaption>") == 3


def test_pictures_are_ranked_by_the_error_of_their_patches() -> None:
    wrong = TRUTH + torch.tensor([0.0, 3, 1, 2, 4])[:, None, None]
    extremes = judged(wrong, None).extremes()
    assert extremes is not None
    assert [(one["source"], round(one["score"], 3)) for one in extremes.best] == [("0", 0), ("2", 1), ("3", 4)]
    assert [one["source"] for one in extremes.worst] == ["4", "1"] and extremes.worst[0]["output"] == ""
