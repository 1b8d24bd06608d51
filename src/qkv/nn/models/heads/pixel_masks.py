"""A class for every pixel at the picture's full resolution: a convolutional decoder that sees the pixels too."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from ....core.layout import Layout
from ....core.spec import Cost
from ...layers.convolution import DoubleConvolution
from ...layers.linear import Linear
from ...layers.losses import LossSums, cross_entropy
from ...layers.patches import Patches, patches_of
from .base import HeadedModel
from .vision import ImageHead, OfImages


class PixelMasks(OfImages, kind="pixel-masks"):
    """Scores of every class at every pixel, by convolutions from the patches' states up, beside convolutions from the
    pixels down.

        d_0 = C(pixels),  d_i = C(pool(d_{i−1}))             pixels at 1, ½, ¼ … of their number along each side
        u_n = h,          u_i = C([up(u_{i+1}), d_i])        the patches' states h, twice as fine each time
        scores = W u_0 + b

    C is a `DoubleConvolution`, pool the largest of 2 × 2, up repeats in 2 × 2. Tokens determine what a place shows, pixels
    where its edges are. This is the decoder of TransUNet (Chen et al. 2021, §3.2) and UNETR (Hatamizadeh et al. 2022); as in
    U-Net (Ronneberger et al. 2015), each step up also reads the features of the same resolution from the way down.

    widths: of d_0, d_1 …, a number for each doubling. If there are too few to halve a patch to one pixel, the finest step
            is at every f-th pixel: it reads blocks of f × f pixels as channels, and W makes f × f scores of each (Shi et
            al. 2016), at a fraction of the cost.

    Scores are (B, labels, H, W). Pictures consist of whole patches.
    """

    labels: int = Field(default=150, gt=0)
    widths: tuple[Annotated[int, Field(gt=0)], ...] = Field(default=(32, 64), min_length=1)

    def check_patches(self, seen: Patches) -> None:
        most = 2 ** len(self.widths)
        if seen.patch[0] != seen.patch[1] or seen.patch[0] % most:
            raise ValueError(
                f"{len(self.widths)} doublings lead from square patches whose side is divisible by {most} to pixels, not "
                f"from {seen.patch[0]} × {seen.patch[1]}; give another number of widths"
            )

    def finest(self, seen: Patches) -> int:
        """f: the stride of the finest step, in pixels."""
        return seen.patch[0] // 2 ** len(self.widths)

    def module_for(self, model: HeadedModel) -> PixelMasksHead:
        seen = model.output.embedding
        assert isinstance(seen, Patches)  # `check_patches` saw to it
        return PixelMasksHead(self, model.d_model, seen)

    def cost_for(self, model: HeadedModel, tokens: int = 0) -> Cost:
        seen = model.output.embedding
        assert isinstance(seen, Patches)
        block = self.finest(seen) ** 2
        total, places = Cost(), max(tokens - seen.before - seen.after, 0) * seen.patch[0] ** 2 // block
        for i, (d_in, down, up) in enumerate(self._steps(model.d_model, seen.channels * block)):
            total += DoubleConvolution.cost(d_in, down, places // 4**i)
            total += DoubleConvolution.cost(up + down, down, places // 4**i)
        out = self.labels * block
        return total + Cost((self.widths[0] + 1) * out, 2 * self.widths[0] * out * places)

    def _steps(self, d_model: int, d_in: int) -> list[tuple[int, int, int]]:
        """For each step, the finest first: the widths of its pixels, of itself, and of the step below."""
        inside = pairwise((d_in, *self.widths))
        return [(a, b, below) for (a, b), below in zip(inside, (*self.widths[1:], d_model), strict=True)]


class PixelMasksHead(ImageHead):
    """The module of `PixelMasks`."""

    takes_pixels = True

    def __init__(self, spec: PixelMasks, d_model: int, seen: Patches) -> None:
        super().__init__()
        self.patch, self.finest = seen.patch[0], spec.finest(seen)
        steps = spec._steps(d_model, seen.channels * self.finest**2)
        self.down = nn.ModuleList(DoubleConvolution(d_in, width) for d_in, width, _ in steps)
        self.up = nn.ModuleList(DoubleConvolution(below + width, width) for _, width, below in steps)
        self.out = Linear(spec.widths[0], spec.labels * self.finest**2)

    def forward(
        self, hidden: Float[Tensor, "B T M"], layout: Layout, pixels: Float[Tensor, "B C H W"]
    ) -> Float[Tensor, "B labels H W"]:
        x = self._grid(hidden, layout, pixels)
        seen = self._seen(pixels.to(hidden.dtype))
        for convolve, beside in zip(reversed(self.up), reversed(seen), strict=True):
            x = convolve(torch.cat([F.interpolate(x, scale_factor=2.0), beside], 1))
        scores = self.out(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return F.pixel_shuffle(scores, self.finest)

    def _grid(self, hidden: Tensor, layout: Layout, pixels: Tensor) -> Float[Tensor, "B M rows columns"]:
        """The patches' states at their places in the picture."""
        grid = layout.grid
        assert grid is not None
        if layout.shape[1] != grid.tokens or pixels.shape[2:] != (grid.rows * self.patch, grid.columns * self.patch):
            raise ValueError(
                f"masks of pixels are of pictures in whole patches of {self.patch} × {self.patch}, none hidden; these"
                f" have {grid.rows} × {grid.columns} patches in {' × '.join(map(str, pixels.shape[2:]))} pixels"
            )
        return hidden[:, patches_of(layout)].mT.unflatten(2, (grid.rows, grid.columns))

    def _seen(self, pixels: Float[Tensor, "B C H W"]) -> list[Tensor]:
        """d_0, d_1 …"""
        x = F.pixel_unshuffle(pixels, self.finest)
        seen: list[Tensor] = []
        for convolve in self.down:
            x = convolve(F.max_pool2d(x, 2) if seen else x)
            seen.append(x)
        return seen

    def output_loss(
        self,
        outputs: Float[Tensor, "B labels H W"],
        labels: Int[Tensor, "B H W"],
        label_smoothing: float,
        z_loss: float,
    ) -> LossSums:
        return cross_entropy(outputs.movedim(1, -1), labels, label_smoothing, z_loss)
