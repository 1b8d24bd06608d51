"""The vision Transformer of Hugging Face's transformers at the same sizes, in the plain loop."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import ViTConfig, ViTForImageClassification

from . import vit
from .plain import PlainStep


class TrainingStep(PlainStep):
    """The loss that the model computes itself, with its usual attention."""

    def __init__(self, shape: vit.Shape, precision: str, compiled: bool = False) -> None:
        torch.manual_seed(0)
        config = ViTConfig(
            image_size=shape["image"],
            patch_size=shape["patch"],
            hidden_size=shape["d_model"],
            num_hidden_layers=shape["n_layers"],
            num_attention_heads=shape["n_heads"],
            intermediate_size=shape["d_ff"],
            num_labels=shape["labels"],
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        super().__init__(ViTForImageClassification(config), precision, compiled)
        self.pixels, self.labels = vit.pictures(shape)

    def loss(self) -> Tensor:
        return self.run(pixel_values=self.pixels, labels=self.labels).loss
