"""A vision Transformer's sizes, and pictures of noise for it. Of libraries it needs PyTorch alone."""

from __future__ import annotations

import torch
from torch import Tensor

Shape = dict[str, int]

SMALL: Shape = {
    "image": 224,
    "patch": 16,
    "d_model": 384,
    "n_layers": 12,
    "n_heads": 6,
    "d_ff": 1536,
    "labels": 1000,
    "batch": 8,
}
TINY: Shape = {**SMALL, "image": 32, "d_model": 64, "n_layers": 1, "n_heads": 2, "d_ff": 256, "batch": 2}


def tokens(shape: Shape) -> int:
    return 1 + (shape["image"] // shape["patch"]) ** 2


def step_flops(shape: Shape) -> int:
    """Products of matrices in forward and backward (3 × forward)."""
    d, n = shape["d_model"], tokens(shape)
    layer = n * (8 * d**2 + 4 * d * shape["d_ff"]) + 4 * d * n**2
    patches = 2 * (n - 1) * 3 * shape["patch"] ** 2 * d
    return 3 * shape["batch"] * (shape["n_layers"] * layer + patches + 2 * d * shape["labels"])


def pictures(shape: Shape) -> tuple[Tensor, Tensor]:
    """(B, 3, H, W) and a class for each."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(shape["batch"], 3, shape["image"], shape["image"], generator=generator)
    return pixels, torch.randint(shape["labels"], (shape["batch"],), generator=generator)
