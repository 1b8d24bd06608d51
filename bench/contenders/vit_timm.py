"""timm's vision Transformer of the same sizes, in the plain loop."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from . import vit
from .plain import PlainStep

# timm imports torchvision, whose compiled operators need CUDA's PyTorch, and which declares rules for two of these; they
# have to be there by name. No vision Transformer calls them.
for operator in ("nms", "qnms"):
    torch.library.define(f"torchvision::{operator}", "(Tensor boxes, Tensor scores, float iou) -> Tensor")

from timm.models.vision_transformer import VisionTransformer  # noqa: E402


class TrainingStep(PlainStep):
    """timm's defaults, which are without dropout, with the fused attention of PyTorch."""

    def __init__(self, shape: vit.Shape, precision: str, compiled: bool = False) -> None:
        torch.manual_seed(0)
        model = VisionTransformer(
            img_size=shape["image"],
            patch_size=shape["patch"],
            embed_dim=shape["d_model"],
            depth=shape["n_layers"],
            num_heads=shape["n_heads"],
            mlp_ratio=shape["d_ff"] / shape["d_model"],
            num_classes=shape["labels"],
        )
        super().__init__(model, precision, compiled)
        self.pixels, self.labels = vit.pictures(shape)

    def loss(self) -> Tensor:
        return F.cross_entropy(self.run(self.pixels).float(), self.labels)
