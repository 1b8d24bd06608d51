"""Load `model.safetensors` of a run: its header is checked against the model's spec before anything is allocated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..hub.files import Safetensors
from ..hub.names import Names, Row
from ..hub.weights import check_depth, place
from ..models.base import ModelSpec
from ..models.renamed import renamed_tensors
from .build import build

OWN = Row("*", "*")  # every tensor under the name that the model has for it


def load(spec: ModelSpec, path: Path, device: torch.device, dtype: torch.dtype | None = None) -> Any:
    """The model of a spec with the weights in a file. Raises ValueError naming the file where they don't fit it."""
    weights = Safetensors([path])
    check_depth(spec, weights, str(path))
    model = build(spec, device="meta")
    renamed = [Row(f"{old}*", f"{new}*") for old, new in renamed_tensors(model).items()]
    place(model, Names.of([OWN, *renamed], model), weights, where=str(path), device=device, dtype=dtype)
    return model.eval()
