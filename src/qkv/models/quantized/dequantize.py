"""`dequantize`: give a quantized model the numbers that its codes stand for, in place."""

from __future__ import annotations

import torch
from torch import nn

from ...layers.quantized import QuantizedMatrix
from ..transformer import TransformerModel


@torch.no_grad()
def dequantize(model: nn.Module) -> None:
    """Replace quantized weights by parameters in the model's dtype, which can be trained; shared ones by one."""
    made: dict[int, nn.Parameter] = {}
    for layer in list(model.modules()):
        matrix = layer._modules.get("weight")
        if isinstance(matrix, QuantizedMatrix):
            made.setdefault(id(matrix), nn.Parameter(matrix.dense()))
            del layer._modules["weight"]
            layer.weight = made[id(matrix)]
    if isinstance(model, TransformerModel):
        model.tie()
