"""The losses of CLIP and SigLIP beside those of transformers, and as the papers write them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from qkv.core.batch import Batch
from qkv.nn.models.dual_encoder import Similarities, unit
from qkv.runs.tasks.image_text_retrieval.objective import ClipObjective, SiglipObjective


class Says(nn.Module):
    """A dual encoder that says what it is given."""

    def __init__(self, scale: float, bias: float | None = None) -> None:
        super().__init__()
        self.scale, self.shift = torch.tensor(scale), None if bias is None else torch.tensor(bias)

    def forward(self, ids: Tensor, pixels: Tensor) -> Similarities:
        return Similarities(unit(pixels), unit(ids), self.scale, self.shift)


def pairs(count: int) -> Batch:
    torch.manual_seed(0)
    vectors = torch.randn(2, count, 6, dtype=torch.float64)
    return Batch({"ids": vectors[0], "pixels": vectors[1]}, counts={"loss": count})


def scores(batch: Batch) -> Tensor:
    return F.normalize(batch.inputs["pixels"], dim=-1) @ F.normalize(batch.inputs["ids"], dim=-1).mT


def test_clip_is_the_mean_of_both_cross_entropies() -> None:
    batch, labels = pairs(5), torch.arange(5)
    term = ClipObjective()(Says(7.0), batch)["loss"]
    both = (F.cross_entropy(7.0 * side, labels, reduction="sum") for side in (scores(batch), scores(batch).mT))
    torch.testing.assert_close(term.sum, sum(both) / 2)
    assert term.count == 5


@pytest.mark.slow
def test_clip_is_the_loss_of_transformers() -> None:
    from transformers.models.clip.modeling_clip import image_text_contrastive_loss

    batch = pairs(5)
    term = ClipObjective()(Says(7.0), batch)["loss"]
    torch.testing.assert_close(term.sum / term.count, image_text_contrastive_loss(7.0 * scores(batch).T))


def test_a_larger_scale_counts_as_the_largest() -> None:
    batch = pairs(3)
    capped, same = (ClipObjective(max_scale=10)(Says(scale), batch)["loss"].sum for scale in (50.0, 10.0))
    assert capped == same


def test_siglip_is_algorithm_1_of_the_paper() -> None:
    batch = pairs(4)
    term = SiglipObjective()(Says(5.0, -2.0), batch)["loss"]
    wanted = sum(
        math.log1p(math.exp(-(1 if i == j else -1) * (5.0 * float(scores(batch)[i, j]) - 2.0)))
        for i in range(4)
        for j in range(4)
    )
    assert float(term.sum) == pytest.approx(wanted, rel=1e-12) and term.count == 4


def test_a_model_without_two_towers_is_told_what_to_take() -> None:
    class One(nn.Module):
        def forward(self, ids: Tensor, pixels: Tensor) -> Tensor:
            return ids

    with pytest.raises(ValueError, match="compares images with texts by two towers; give the model clip and the task"):
        ClipObjective()(One(), pairs(2))
