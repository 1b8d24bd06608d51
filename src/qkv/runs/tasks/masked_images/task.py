"""The task `masked-patches`: masked autoencoding (MAE), denoising and super-resolution of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch.nn import functional as F

from ....core.batch import Batch
from ....core.layout import Grid
from ....core.metrics.base import Metric
from ....data import ascii_art
from ....data.batching.numpy_batch import Array, MaskedPatchLayout, NumpyBatch
from ....data.source import Example, Skipped, Source
from ....data.task import Item, RandomContext, format_value, sketch_lines
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....nn.layers.embedding import Input
from ....nn.layers.patches import Patches, shown_patches
from ..pictures import AugmentedTask
from .metric import ReconstructionMetric

_ORDER = "order"  # the target with a random number for each patch of a picture; those with the least are shown


class MaskedPatches(AugmentedTask, kind="masked-patches"):
    """The model reads a part of each picture and reconstructs the whole (He et al. 2022, MAE). The head is one of `pixels`.

    masked: the share of patches that is hidden, drawn anew for each picture and epoch. The loss is on these.
    noise:  standard deviation of Gaussian noise added to the input, in units of the pictures' (denoising, Vincent et al.
            2008).
    coarse: replaces squares of `coarse` × `coarse` pixels of the input by their mean (super-resolution).

    Without `masked` the loss is on all patches. Labels are the original pictures.
    """

    masked: float = Field(default=0.75, ge=0, lt=1)
    noise: float = Field(default=0.0, ge=0)
    coarse: int = Field(default=1, ge=1)
    grid: Grid | None = None

    @model_validator(mode="after")
    def _hides_something(self) -> Self:
        if not self.masked and not self.noise and self.coarse == 1:
            raise ValueError("nothing is hidden of the pictures; give task.masked, task.noise or task.coarse")
        return self

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        task = super().resolve(source, tokenizer, inputs)
        assert isinstance(inputs, Patches)
        grid = inputs.grid_of(task.size)
        shown = int(grid.patches * (1 - self.masked))
        if not shown or (self.masked and shown == grid.patches):
            what = "all" if not shown else "none"
            raise ValueError(f"task.masked={self.masked} hides {what} of {grid.patches} patches")
        if any(side % self.coarse for side in task.size):
            height, width = task.size
            raise ValueError(f"task.coarse={self.coarse} does not divide pictures of {height} × {width} pixels")
        return task.replace({"grid": tuple(grid), "tokens": grid.before + shown + grid.after})

    def items(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Item | Skipped]:
        assert self.grid is not None
        stack = self.stacked(examples, randomness)
        inputs = self.corrupted(stack.pictures, randomness.generator)
        orders = randomness.generator.random((len(inputs), self.grid.patches), np.float32)
        abouts = ({} if randomness.training else {"where": examples[i].get("where", "")} for i in stack.kept)
        rows = zip(inputs, stack.pictures, orders, abouts, strict=True)
        return stack.with_skipped(
            Item({"ids": picture}, truth, {_ORDER: order}, self.tokens, about) for picture, truth, order, about in rows
        )

    def corrupted(self, pictures: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
        """Add noise to pictures (N, C, H, W) and coarsen them, before patches are hidden."""
        if self.coarse > 1:
            n, channels, height, width = pictures.shape
            k = self.coarse
            squares = pictures.reshape(n, channels, height // k, k, width // k, k).mean((3, 5))
            pictures = squares.repeat(k, 2).repeat(k, 3)
        if self.noise:
            noise: NDArray[np.float32] = random.standard_normal(pictures.shape, np.float32)
            pictures = pictures + np.float32(self.noise) * noise
        return pictures

    def collate(self, items: Sequence[Item], pad: int) -> NumpyBatch:
        batch = super().collate(items, pad)
        assert self.grid is not None
        order: Array = batch.targets[_ORDER]
        placed = {"ids": MaskedPatchLayout(self.grid, order, self.masked)} if self.masked else {}
        return replace(batch, placed=dict(placed), targets={})

    def counts(self, labels: Array | None, targets: dict[str, Any]) -> dict[str, int]:
        """Count the patches that the loss is on."""
        assert self.grid is not None
        patches = self.grid.patches
        counted = patches - int(patches * (1 - self.masked)) if self.masked else patches
        return {"loss": 0 if labels is None else len(labels) * counted}

    def preview(self, batch: Batch, row: int, tokenizer: TextDecoder | None) -> list[tuple[str, str]]:
        """Return the visible part of the picture, and the picture to reconstruct."""
        assert self.grid is not None and batch.labels is not None
        seen, truth = batch.inputs["ids"][row], batch.labels[row]
        layout = batch.inputs.get("layout")
        if layout is None:
            first = [("ids", format_value(seen, tokenizer, "ids")), *(("", line) for line in sketch_lines(seen))]
        else:
            hidden = torch.ones(self.grid.patches, dtype=torch.bool)
            hidden[shown_patches(layout)[row if len(layout.positions) > 1 else 0]] = False
            grid = hidden.view(1, 1, self.grid.rows, self.grid.columns).float()
            away = F.interpolate(grid, truth.shape[1:], mode="nearest")[0, 0].bool()
            first = [("ids", f"{int((~hidden).sum())} of {len(hidden)} patches; the others are dots")]
            first += [("", line) for line in ascii_art.picture(seen, away)]
        return [
            *first,
            ("label", format_value(truth, tokenizer, "label")),
            *(("", line) for line in sketch_lines(truth)),
        ]

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return ReconstructionMetric(self.mean, self.std)
