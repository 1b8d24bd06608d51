"""Objectives of dual encoders: the symmetric contrastive loss of CLIP, and the sigmoid loss of SigLIP."""

from __future__ import annotations

from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from ....core.batch import Batch
from ....core.spec import brief
from ....nn.models.dual_encoder import Similarities
from ....training.pairs import PairObjective, PairVectors, pair_numbers


class DualEncoderObjective(PairObjective):
    """Base class of objectives of image–text pairs; u_i is the vector of the image of pair i, v_i that of its text."""

    def vectors(self, model: nn.Module, batch: Batch) -> PairVectors:
        out = model(**batch.inputs)
        if not isinstance(out, Similarities) or out.image is None or out.text is None:
            raise ValueError(
                f"the objective {brief(self.kind)} compares images with texts by two towers; give the model clip and the "
                "task retrieve"
            )
        learned = {"scale": out.scale} | ({} if out.bias is None else {"bias": out.bias})
        return PairVectors(out.image, out.text, learned)


class ClipObjective(DualEncoderObjective, kind="clip"):
    """½ [−log softmax_j(s ⟨u_i, v_j⟩)_i − log softmax_j(s ⟨u_j, v_i⟩)_i]: each image identifies its text among the texts of
    the step, and each text its image (Radford et al. 2021, CLIP, figure 3). s is learned, and counts as `max_scale` if it is
    larger.

    A step has the pairs of all accumulated batches and ranks, see `PairObjective`. The value is in nats per pair;
    chance is the logarithm of the number of pairs in a step.
    """

    max_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 100.0

    def loss(self, own: PairVectors, u: Float[Tensor, "N M"], v: Float[Tensor, "N M"], start: int) -> Tensor:
        scale, labels = own.learned["scale"].clamp(max=self.max_scale), pair_numbers(own, u, start)
        bias = own.learned.get("bias", 0.0)  # which changes no soft-max
        by_image = F.cross_entropy(scale * own.u @ v.mT + bias, labels, reduction="sum")
        by_text = F.cross_entropy(scale * own.v @ u.mT + bias, labels, reduction="sum")
        return (by_image + by_text) / 2


class SiglipObjective(DualEncoderObjective, kind="siglip"):
    """−Σ_j log σ(z_ij (s ⟨u_i, v_j⟩ + b)), z_ij being 1 if i = j and else −1: whether an image and a text belong together is
    a yes or no for each pair of a step (Zhai et al. 2023, SigLIP, §3). s and b are learned; a model without b has b = 0.

    A step has the pairs of all accumulated batches and ranks, see `PairObjective`. The value is the sum over the
    texts of a step, in nats per image.
    """

    def loss(self, own: PairVectors, u: Float[Tensor, "N M"], v: Float[Tensor, "N M"], start: int) -> Tensor:
        scores = own.learned["scale"] * own.u @ v.mT + own.learned.get("bias", 0.0)
        labels = pair_numbers(own, u, start)
        signs = torch.full_like(scores, -1.0).scatter(1, labels[:, None], 1.0)
        return -F.logsigmoid(signs * scores).sum()
