"""Heads for time series: forecasts of the values that follow."""

from __future__ import annotations

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from ....core.layout import Layout
from ....core.spec import Cost
from ...layers.dropout import dropout_of_vectors
from ...layers.linear import Linear
from ...layers.losses import LossSums, at_least_fp32
from ...layers.patches import Patches, patches_of
from .base import HeadModule
from .vision import ImageHead, OfImages


class Forecaster(OfImages, kind="forecaster"):
    """y = W [h_1; …; h_N] + b: the next `labels` values from the states of all patches of a history (Nie et al. 2023).

    The loss is the squared error of each value, scaled back if the labels are (B, 2, labels): values, and what they
    were divided by. `patches` is N, which the model's input decides.
    """

    labels: int = Field(default=24, gt=0)
    patches: int = Field(default=12, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)

    def check_patches(self, seen: Patches) -> None:
        if seen.grid.patches != self.patches:
            raise ValueError(
                f"head.patches is {self.patches}, and the model reads {seen.grid.patches} patches; leave it out"
            )

    def module(self, d_model: int, vocab_size: int) -> HeadModule:
        return ForecasterHead(self, d_model)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        weights = self.patches * d_model * self.labels
        return Cost(weights + self.labels, 2 * weights * (tokens > 0))


class ForecasterHead(ImageHead):
    """The module of `Forecaster`."""

    def __init__(self, spec: Forecaster, d_model: int) -> None:
        super().__init__()
        self.dropout = spec.dropout
        self.out = Linear(spec.patches * d_model, spec.labels)

    def forward(self, hidden: Float[Tensor, "B T M"], layout: Layout) -> Float[Tensor, "B labels"]:
        x = hidden[:, patches_of(layout)].flatten(1)
        return self.out(dropout_of_vectors(x, self.dropout, self.training))

    def output_loss(
        self,
        outputs: Float[Tensor, "B labels"],
        labels: Float[Tensor, "B labels"] | Float[Tensor, "B 2 labels"],
        label_smoothing: float,
        z_loss: float,
    ) -> LossSums:
        forecast = at_least_fp32(outputs)
        values, scale = (
            at_least_fp32(labels).unbind(1) if labels.ndim == 3 else (at_least_fp32(labels), torch.ones_like(forecast))
        )
        if forecast.shape != values.shape:
            raise ValueError(f"labels are {tuple(forecast.shape)} values here, not {tuple(values.shape)}")
        loss = F.mse_loss(forecast * scale, values * scale, reduction="sum")
        return LossSums(loss, loss.detach(), torch.tensor(values.numel(), device=forecast.device))
