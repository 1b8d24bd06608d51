"""Encode weights, masks and vectors for a page: 8 or 16 bits a number, in base64, each distinct array once."""

from __future__ import annotations

import base64
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ...nn.attention import tap
from ...nn.kernels.request import Request
from .attention import AttentionGroup, LayerAttention
from .axis import Axis
from .rotation import Rotation, rotation_of
from .score import output_matrix, without_edits


class Arrays:
    """Arrays of a page in base64; equal ones are kept once. `size` is the number of characters so far."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.size = 0
        self._index: dict[str, int] = {}

    def add(self, data: bytes) -> int:
        """Return the index of an array."""
        text = base64.b64encode(data).decode("ascii")
        if text not in self._index:
            self._index[text] = len(self.texts)
            self.texts.append(text)
            self.size += len(text)
        return self._index[text]


def quantized(weights: Float[Tensor, "H T S"]) -> tuple[bytes, bytes]:
    """Return the weights in 8 bits each, and the largest of each row in fp32: w ≈ level / 255 · largest.

    A weight differs by at most largest / 510.
    """
    largest = weights.amax(-1, keepdim=True).clamp(min=1e-30)
    levels = (weights / largest * 255).round().clamp(0, 255).to(torch.uint8)
    return levels.contiguous().numpy().tobytes(), largest.float().contiguous().numpy().tobytes()


def bits(mask: Bool[Tensor, "H T S"]) -> bytes:
    """Return a mask as bits, the first in the highest bit of the first byte; one head if all are equal."""
    import numpy as np

    return np.packbits(mask.numpy().reshape(-1)).tobytes()


def group_json(
    group: AttentionGroup, axes: dict[str, Axis], model: nn.Module | None, arrays: Arrays, room: int
) -> dict[str, Any]:
    """Return a group for the page. Vectors q and k are added while `arrays` has fewer than `room` characters."""
    query, key = axes[group.query], axes[group.key]
    layers = [_layer_json(layer, arrays) for layer in group.layers]
    for layer, encoded in zip(group.layers, layers, strict=True):
        if layer.request is not None:
            encoded["norms"] = _norms(layer, key, model, arrays)
            encoded["dots"] = _is_dot_product(layer.request)
            if arrays.size + _vector_size(layer, query, key) < room:
                encoded |= _vectors(layer, query, key, model, arrays)
    return {
        "name": group.name,
        "query": group.query,
        "key": group.key,
        "total": group.total,
        "note": group.note,
        "layers": layers,
    }


def _layer_json(layer: LayerAttention, arrays: Arrays) -> dict[str, Any]:
    levels, largest = quantized(layer.weights)
    mask = layer.computed
    same = mask is not None and bool((mask == mask[:1]).all())
    return {
        "index": layer.index,
        "name": layer.name,
        "heads": list(layer.heads),
        "weights": arrays.add(levels),
        "largest": arrays.add(largest),
        "mask": None if mask is None else arrays.add(bits(mask[:1] if same else mask)),
        "maskPerHead": mask is not None and not same,
    }


def _norms(layer: LayerAttention, key: Axis, model: nn.Module | None, arrays: Arrays) -> int:
    """‖f(v)‖ of every key on display, for every head."""
    assert layer.request is not None
    request = layer.request
    group = request.n_heads // request.n_kv_heads
    rows = []
    for head in layer.heads:
        values = request.v[0, list(key.shown), head // group].detach().double().cpu()
        matrix = output_matrix(model, layer.name, head, values.shape[-1])
        rows.append((values if matrix is None else values @ matrix.T).norm(dim=-1))
    return arrays.add(torch.stack(rows).float().numpy().tobytes())


def _vector_size(layer: LayerAttention, query: Axis, key: Axis) -> int:
    """Characters that the vectors of a layer take."""
    request = layer.request
    assert request is not None
    heads, width = len(layer.heads), request.q.shape[-1]
    numbers = heads * width * (len(query.rows) + len(key.shown))
    numbers += heads * len(query.rows) * len(key.shown) * ((request.bias is not None) + bool(request.edits))
    return numbers * 8 // 3


def _vectors(layer: LayerAttention, query: Axis, key: Axis, model: nn.Module | None, arrays: Arrays) -> dict[str, Any]:
    """q (H, T, D), k (H, S, D), the position bias and what an intervention adds to scores (H, T, S) in fp16, and the tables
    of rotary positions; nothing for scores that are not dot products."""
    request = layer.request
    assert request is not None
    if not _is_dot_product(request):
        return {}
    small, _ = tap.part(request, layer.heads, query.rows)
    q = small.q[0].transpose(0, 1)
    k = small.k[0, list(key.shown)].transpose(0, 1)
    bias = small.dense_bias()
    if bias is not None:
        shape = (len(bias), len(layer.heads), len(query.rows), request.k.shape[1])
        bias = bias.expand(shape)[0, :, :, list(key.shown)]
    rotation = rotation_of(model, request)
    return {
        "rotation": None if rotation is None else _rotation(rotation, query, key, arrays),
        "edit": _score_edits(request, layer, query, key, arrays),
        "q": arrays.add(_half(q)),
        "k": arrays.add(_half(k)),
        "width": q.shape[-1],
        "scale": request.scale,
        "softcap": request.softcap,
        "bias": None if bias is None else arrays.add(_half(bias)),
        "softmax": request.weighting is None,
    }


def _is_dot_product(request: Request) -> bool:
    return request.score is None and request.known_weights is None


def _rotation(rotation: Rotation, query: Axis, key: Axis, arrays: Arrays) -> dict[str, Any]:
    """Cosines, then sines, of the queries and keys on display, in fp32."""
    tables = [
        torch.stack([table[list(rows)] for table in tables])
        for tables, rows in ((rotation.queries, query.rows), (rotation.keys, key.shown))
    ]
    q, k = (arrays.add(table.float().contiguous().numpy().tobytes()) for table in tables)
    return {"q": q, "k": k, "pairs": rotation.module.width // 2, "interleaved": rotation.module.interleaved}


def _score_edits(request: Request, layer: LayerAttention, query: Axis, key: Axis, arrays: Arrays) -> int | None:
    """What an intervention adds to scores; None without one."""
    if all(one.scores is None for one in request.edits):
        return None
    edited, plain = (tap.scores(one, layer.heads, query.rows) for one in (request, without_edits(request, "scores")))
    return arrays.add(_half((edited - plain)[0, :, :, list(key.shown)]))


def _half(x: Tensor) -> bytes:
    return x.detach().cpu().clamp(-65504, 65504).to(torch.float16).contiguous().numpy().tobytes()
