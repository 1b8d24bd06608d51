"""`dequantize`: replace the quantized weights of a model by full-precision parameters, in place."""

from __future__ import annotations

import torch
from torch import nn

from ...layers.quantized import QuantizedMatrix
from ..transformer import TransformerModel


@torch.no_grad()
def dequantize(model: nn.Module) -> None:
    """Replace quantized weights by trainable parameters of the model's dtype. Shared weights stay shared."""
    made: dict[int, nn.Parameter] = {}
    for layer in list(model.modules()):
        matrix = layer._modules.get("weight")
        if isinstance(matrix, QuantizedMatrix):
            made.setdefault(id(matrix), nn.Parameter(matrix.dense()))
            del layer._modules["weight"]
            layer.weight = made[id(matrix)]
    if isinstance(model, TransformerModel):
        model.tie()
