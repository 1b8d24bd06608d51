"""`quantize`: give a model quantized weights, in place, by rounding, GPTQ or AWQ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...core.batch import Batch
from ...layers.grouped_linear import GroupedLinear
from ...layers.linear import Linear
from ...layers.quantized import QuantizedMatrix, put
from ...quantization.formats import Packed
from ...quantization.methods import awq
from ...quantization.methods.gptq import gptq
from ...quantization.methods.rtn import rtn
from ...quantization.scheme import Method, Scheme, check_method
from ..transformer import TransformerModel
from .moments import Forward, Moments, moments
from .select import group_sizes, matrices
from .smoothing import smoothings

AT_ONCE = 1 << 30  # bytes of the matrices E[x xᵀ] that are kept at a time; later layers see the earlier ones quantized

Tell = Callable[[str, int, int], None]
"""Called with a layer's path, its number from 1, and the number of layers."""


@dataclass(frozen=True)
class Quantized:
    """What `quantize` did.

    errors:  by layer, √(E‖Ŵx − Wx‖² / E‖Wx‖²) over the calibration data, or without data ‖Ŵ − W‖ / ‖W‖.
    groups:  inputs of a row that share a scale, by layer.
    weights: bytes of all weights before and after.
    """

    errors: dict[str, float] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    weights: tuple[int, int] = (0, 0)

    def worst(self, count: int = 5) -> dict[str, float]:
        """The layers with the largest errors."""
        return dict(sorted(self.errors.items(), key=lambda item: -item[1])[:count])


@torch.no_grad()
def quantize(
    model: TransformerModel,
    scheme: Scheme,
    method: Method = "rtn",
    *,
    embeddings: bool = False,
    head: bool = False,
    keep: Sequence[str] = (),
    batches: Sequence[Batch] = (),
    forward: Forward | None = None,
    tell: Tell | None = None,
) -> Quantized:
    """Quantize a model's weights in place; see `select.matrices` for which. Tables and experts are rounded in any case.

    batches: calibration data, which gptq and awq need; `forward` makes a pass over one, by default `model(**batch.inputs)`.

    Raises ValueError, before anything is changed, for a layer that can't take the scheme, and for gptq and awq without data.
    """
    check_method(method)
    chosen = matrices(model, embeddings, head, keep)
    groups = group_sizes(chosen, scheme)
    if method != "rtn" and not batches:
        raise ValueError(f"{method} needs calibration data; give some, or choose the method rtn, which needs none")
    before, errors = n_bytes(model), dict[str, float]()
    work = _Work(model, scheme, method, groups, batches, forward or _forward)
    for some in _portions(chosen) if batches else [chosen]:
        for path, error in work.quantize(some):
            errors[path] = error
            if tell is not None:
                tell(path, len(errors), len(chosen))
    model.tie()
    return Quantized({path: errors[path] for path in chosen}, groups, (before, n_bytes(model)))


def blank(model: nn.Module, scheme: Scheme) -> None:
    """Replace the weights that `quantize` would quantize by uninitialized codes and scales, to measure their memory."""
    chosen = matrices(model)
    for path, group in group_sizes(chosen, scheme).items():
        weight = chosen[path].weight
        shape = (weight[..., 0].numel(), weight.shape[-1])
        packed = scheme.format.blank(shape, group, weight.device, scheme.symmetric)
        put(model, path, QuantizedMatrix(packed, scheme.activations, weight.dtype, experts_of(chosen[path])))
    if isinstance(model, TransformerModel):
        model.tie()


def experts_of(layer: nn.Module) -> int | None:
    """The number of matrices in the weight of a layer of experts; None for other layers."""
    return layer.n_experts if isinstance(layer, GroupedLinear) else None


def n_bytes(model: nn.Module) -> int:
    """Bytes of a model's parameters and buffers; shared ones once."""
    tensors = {t.data_ptr(): t.nbytes for t in (*model.parameters(), *model.buffers()) if t.numel()}
    return sum(tensors.values())


def _forward(model: nn.Module, batch: Batch) -> object:
    return model(**batch.inputs)


@dataclass
class _Work:
    model: TransformerModel
    scheme: Scheme
    method: Method
    groups: Mapping[str, int]
    batches: Sequence[Batch]
    forward: Forward

    def quantize(self, layers: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
        """Quantize some layers, and yield the path and the error of each."""
        seen: dict[str, Moments] = {}
        if self.batches:
            linear = {path: layer for path, layer in layers.items() if isinstance(layer, Linear)}
            seen = moments(self.model, linear, self.batches, self.forward)
        seconds = {path: own.second for path, own in seen.items()}
        if self.method == "awq":
            self._smooth(layers, seen, seconds)
        for path, layer in layers.items():
            weight, second = layer.weight.flatten(0, -2), seconds.get(path)
            packed = self._packed(path, weight, second)
            yield path, _error(weight, packed, second)
            put(self.model, path, QuantizedMatrix(packed, self.scheme.activations, weight.dtype, experts_of(layer)))

    def _packed(self, path: str, weight: Tensor, second: Tensor | None) -> Packed:
        settings = (self.scheme.format, self.groups[path], self.scheme.symmetric)
        if second is None or self.method == "rtn":
            return rtn(weight, *settings)
        return (gptq if self.method == "gptq" else awq.clipped)(weight, *settings, second=second)

    def _smooth(self, layers: Mapping[str, Any], seen: Mapping[str, Moments], seconds: dict[str, Tensor]) -> None:
        """Move scales from inputs into the weights that read them."""
        for place in smoothings(self.model):
            if not all(path in seen for path in place.readers):
                continue
            weights = [layers[path].weight for path in place.readers]
            own, groups = seen[place.readers[0]], [self.groups[path] for path in place.readers]
            second = seconds[place.readers[0]]
            s = awq.factors(weights, self.scheme.format, groups, self.scheme.symmetric, second=second, mean=own.mean)
            place.divide(s)
            for path, weight in zip(place.readers, weights, strict=True):
                weight.copy_(weight.float() * s)
                seconds[path] = second / s / s[:, None]


def _portions(layers: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Layers in the model's order, those of a block together, whose moments need no more than `AT_ONCE` bytes."""
    blocks: dict[str, dict[str, Any]] = {}
    for path, layer in layers.items():
        parts = path.split(".")
        blocks.setdefault(".".join(parts[:3]) if ".blocks." in path else path, {})[path] = layer
    portion: dict[str, Any] = {}
    room = AT_ONCE
    for some in blocks.values():
        size = sum(4 * layer.weight.shape[-1] ** 2 for layer in some.values())
        if portion and size > room:
            yield portion
            portion, room = {}, AT_ONCE
        portion |= some
        room -= size
    yield portion


def _error(weight: Tensor, packed: Packed, second: Tensor | None) -> float:
    wide, near = weight.float(), packed.dense()
    if second is None:
        return float((near - wide).norm() / wide.norm().clamp(min=1e-30))
    off, all_ = (((t @ second) * t).sum().clamp(min=0) for t in (near - wide, wide))
    return float((off / all_.clamp(min=1e-30)).sqrt())
