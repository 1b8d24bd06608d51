"""Image convolutions: a 3 × 3 layer with norm and ReLU, U-Net's double convolution, and a convolutional stem for patches."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.spec import Cost
from .norm import LayerNorm

SIDE = 3  # kernel size


class PictureConvolution(nn.Module):
    """y = ReLU(norm(W ∗ x)), W of 3 × 3 pixels, at every `stride`-th pixel; the norm is LayerNorm over the channels. A pair
    of strides is for rows and columns.

    Each pixel is normalized independently, so the output does not depend on the batch or the image size. W is
    a matrix (d_out, 9 · d_in), as initializations and optimizers expect. Images are in channels-last memory format, which
    the norm reads without a copy and CPUs convolve fastest.
    """

    def __init__(self, d_in: int, d_out: int, stride: int | tuple[int, int] = 1) -> None:
        super().__init__()
        self.d_in, self.stride = d_in, stride
        self.weight = nn.Parameter(torch.empty(d_out, d_in * SIDE**2))
        self.norm = LayerNorm().module(d_out)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D H W"]:
        x = x.contiguous(memory_format=torch.channels_last)
        y = F.conv2d(x, self.weight.unflatten(1, (self.d_in, SIDE, SIDE)), stride=self.stride, padding=SIDE // 2)
        return self.norm(y.permute(0, 2, 3, 1)).relu().permute(0, 3, 1, 2)

    @staticmethod
    def cost(d_in: int, d_out: int, pixels: int = 0) -> Cost:
        """Cost of this number of output pixels."""
        weights = d_in * d_out * SIDE**2
        return Cost(weights, 2 * weights * pixels) + LayerNorm().cost(d_out, pixels)


class DoubleConvolution(nn.Sequential):
    """Two convolutions in sequence (U-Net, Ronneberger et al. 2015)."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(PictureConvolution(d_in, d_out), PictureConvolution(d_out, d_out))

    @staticmethod
    def cost(d_in: int, d_out: int, pixels: int = 0) -> Cost:
        return PictureConvolution.cost(d_in, d_out, pixels) + PictureConvolution.cost(d_out, d_out, pixels)


class Stem(nn.Sequential):
    """n convolutions of stride 2: (B, C, H, W) → (B, widths[-1], H/2ⁿ, W/2ⁿ) (Xiao et al. 2021)."""

    def __init__(self, channels: int, widths: tuple[int, ...]) -> None:
        pairs = zip((channels, *widths), widths, strict=False)
        super().__init__(*(PictureConvolution(d_in, d_out, stride=2) for d_in, d_out in pairs))

    @staticmethod
    def cost(channels: int, widths: tuple[int, ...], patches: int = 0) -> Cost:
        """Cost of this number of patches."""
        total = Cost()
        for i, (d_in, d_out) in enumerate(zip((channels, *widths), widths, strict=False), 1):
            total += PictureConvolution.cost(d_in, d_out, patches * 4 ** (len(widths) - i))
        return total
