"""Load `model.safetensors` of a run: its header is checked against the model's spec before anything is allocated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ...nn.models.base import ModelSpec
from ...nn.models.build import AnyModel
from ...nn.quantization.scheme import Scheme
from ..hub.files import Safetensors, WeightFiles
from ..hub.names import Names, Row
from ..hub.quantized import QuantizedWeights, layout_of
from ..hub.weights import StoredValues, check_depth, place, values_of
from .build import build

OWN = Row("*", "*")  # every tensor under the name that the model has for it


def load(
    spec: ModelSpec,
    path: Path,
    device: torch.device,
    dtype: torch.dtype | None = None,
    quantization: Mapping[str, Any] | None = None,
    scheme: Scheme | None = None,
) -> AnyModel:
    """The model of a spec with the weights in a file, quantized as its `quantization_config` says, or rounded to a `scheme`.

    Raises ValueError naming the file if they don't fit it.
    """
    weights: WeightFiles = Safetensors([path])
    if quantization is not None:
        weights = QuantizedWeights(weights, layout_of(quantization, str(path.parent)), str(path))
    check_depth(spec, weights, str(path))
    model = build(spec, device="meta")
    place(model, Names.of([OWN], model), weights, where=str(path), device=device, dtype=dtype, scheme=scheme)
    return model.eval()


def outline(spec: ModelSpec, path: Path, device: torch.device, dtype: torch.dtype) -> tuple[Any, StoredValues]:
    """The same model with its parameters on the meta device, and their values, which are read one at a time."""
    weights = Safetensors([path])
    check_depth(spec, weights, str(path))
    model = build(spec, device="meta")
    values = values_of(model, Names.of([OWN], model), weights, where=str(path), device=device, dtype=dtype)
    return model.eval(), values
