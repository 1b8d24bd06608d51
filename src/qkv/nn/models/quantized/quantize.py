"""`quantize`: give a model quantized weights, in place, by rounding, GPTQ or AWQ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ....core.batch import Batch
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
from .parts import QuantizedPart, experts_of, names, parts
from .select import group_sizes, matrices, schemes_of
from .smoothing import smoothings

TOKENS = {
    "rtn": 0,
    "gptq": 2,
    "awq": 1,
}  # for each input of an expert; on fewer GPTQ is worse than rounding for other tokens
AT_ONCE = 1 << 30  # bytes of the matrices E[x xᵀ] that are kept at a time; later layers see the earlier ones quantized

Tell = Callable[[str, int, int], None]
"""Called with a layer's path, its number from 1, and the number of layers."""


@dataclass(frozen=True)
class Quantized:
    """What `quantize` did.

    errors:  by layer, √(E‖Ŵx − Wx‖² / E‖Wx‖²) over the calibration data, or without data ‖Ŵ − W‖ / ‖W‖.
    groups:  inputs of a row that share a scale, by layer.
    weights: bytes of all weights before and after.
    rounded: by layer, the experts that gptq or awq left to rounding, and how many tokens each got: too few.
    rows, tokens: of the calibration data.
    """

    errors: dict[str, float] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    weights: tuple[int, int] = (0, 0)
    rounded: dict[str, dict[int, int]] = field(default_factory=dict)
    rows: int = 0
    tokens: int = 0

    def worst(self, count: int = 5) -> dict[str, float]:
        """The layers with the largest errors."""
        return dict(sorted(self.errors.items(), key=lambda item: -item[1])[:count])


@torch.no_grad()
def quantize(
    model: TransformerModel,
    scheme: Scheme,
    method: Method = "rtn",
    *,
    embeddings: bool | Scheme = False,
    head: bool | Scheme = False,
    keep: str | Sequence[str] = (),
    batches: Sequence[Batch] = (),
    forward: Forward | None = None,
    tell: Tell | None = None,
) -> Quantized:
    """Quantize a model's weights in place; see `select.matrices` for which. Tables are rounded in any case.

    embeddings, head: whether to quantize these too, or a `Scheme` for them that differs from the one for other layers.
    batches: calibration data, which gptq and awq need; `forward` makes a pass over one, by default `model(**batch.inputs)`.

    An expert is calibrated on the tokens that are routed to it. One with fewer tokens than `TOKENS` times its inputs is
    rounded, and the result's `rounded` says which.

    Raises ValueError, before anything is changed, for a layer that can't take the scheme, and for gptq and awq without data.
    """
    check_method(method)
    chosen = matrices(model, embeddings, head, keep)
    schemes = schemes_of(chosen, scheme, embeddings, head)
    groups = group_sizes(chosen, schemes)
    if method != "rtn" and not batches:
        raise ValueError(f"{method} needs calibration data; give some, or choose the method rtn, which needs none")
    before, errors = n_bytes(model), dict[str, float]()
    work = _Work(model, schemes, method, groups, batches, forward or _forward)
    for some in _portions(chosen) if batches else [chosen]:
        for path, error in work.quantize(some):
            errors[path] = error
            if tell is not None:
                tell(path, len(errors), len(chosen))
    model.tie()
    return Quantized({path: errors[path] for path in chosen}, groups, (before, n_bytes(model)), work.rounded)


def blank(model: nn.Module, scheme: Scheme) -> None:
    """Replace the weights that `quantize` would quantize by uninitialized codes and scales, to measure their memory."""
    chosen = matrices(model)
    for path, group in group_sizes(chosen, schemes_of(chosen, scheme)).items():
        weight = chosen[path].weight
        shape = (weight[..., 0].numel(), weight.shape[-1])
        packed = scheme.format.blank(shape, group, weight.device, scheme.symmetric)
        put(model, path, QuantizedMatrix(packed, scheme.activations, weight.dtype, experts_of(chosen[path])))
    if isinstance(model, TransformerModel):
        model.tie()


def n_bytes(model: nn.Module) -> int:
    """Bytes of a model's parameters and buffers; shared ones once."""
    tensors = {t.data_ptr(): t.nbytes for t in (*model.parameters(), *model.buffers()) if t.numel()}
    return sum(tensors.values())


def _forward(model: nn.Module, batch: Batch) -> object:
    return model(**batch.inputs)


@dataclass
class _Work:
    model: TransformerModel
    schemes: Mapping[str, Scheme]
    method: Method
    groups: Mapping[str, int]
    batches: Sequence[Batch]
    forward: Forward
    rounded: dict[str, dict[int, int]] = field(default_factory=dict)

    def quantize(self, layers: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
        """Quantize some layers, and yield the path and the error of each."""
        seen: dict[str, Moments] = {}
        if self.batches:
            linear = {path: layer for path, layer in layers.items() if isinstance(layer, Linear | GroupedLinear)}
            seen = moments(self.model, linear, self.batches, self.forward)
        every = parts(layers)
        seconds = {name: own.second for name, own in seen.items()}
        if self.method == "awq":
            self._smooth(every, seen, seconds)
        for path, layer in layers.items():
            own = {name: every[name] for name in names(path, layer)}
            packed = {name: self._packed(name, part, seen, seconds) for name, part in own.items()}
            yield path, _error(own, packed, seen, seconds)
            whole = Packed.below_one_another(list(packed.values()))
            activations = self.schemes[path].activations
            put(self.model, path, QuantizedMatrix(whole, activations, layer.weight.dtype, experts_of(layer)))

    def _packed(
        self, name: str, part: QuantizedPart, seen: Mapping[str, Moments], seconds: Mapping[str, Tensor]
    ) -> Packed:
        scheme = self.schemes[part.path]
        settings = (scheme.format, self.groups[part.path], scheme.symmetric)
        weight = part.weight.flatten(0, -2)
        if name not in seen or self.method == "rtn":
            return rtn(weight, *settings)
        if not self._are_enough(part, seen[name]):
            assert part.expert is not None
            self.rounded.setdefault(part.path, {})[part.expert] = seen[name].count
            return rtn(weight, *settings)
        return (gptq if self.method == "gptq" else awq.clipped)(weight, *settings, second=seconds[name])

    def _are_enough(self, part: QuantizedPart, seen: Moments) -> bool:
        """Whether an expert got enough tokens for its errors over other tokens to be smaller too; other layers get all."""
        return part.expert is None or seen.count >= TOKENS[self.method] * part.weight.shape[-1]

    def _smooth(
        self, every: Mapping[str, QuantizedPart], seen: Mapping[str, Moments], seconds: dict[str, Tensor]
    ) -> None:
        """Move scales from inputs into the weights that read them."""
        for place in smoothings(self.model):
            if not all(name in seen for name in place.readers):
                continue
            readers = [every[name] for name in place.readers]
            own = list({id(seen[name]): seen[name] for name in place.readers}.values())
            tokens = sum(each.count for each in own)
            if not tokens or (len(readers) == 1 and not self._are_enough(readers[0], own[0])):
                continue
            most = max(each.count for each in own)
            shares = [seconds[name] * (seen[name].count / most) for name in place.readers]
            mean = torch.stack([each.magnitudes for each in own]).sum(0) / tokens
            groups = [self.groups[part.path] for part in readers]
            weights = [part.weight for part in readers]
            scheme = self.schemes[readers[0].path]
            s = awq.factors(weights, scheme.format, groups, scheme.symmetric, second=shares, mean=mean)
            place.divide(s)
            for name, weight in zip(place.readers, weights, strict=True):
                weight.copy_(weight.float() * s)
                seconds[name] = seconds[name] / s / s[:, None]


def _portions(layers: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Layers in the model's order, a block's layers together, whose moments need no more than `AT_ONCE` bytes."""
    blocks: dict[str, dict[str, Any]] = {}
    for path, layer in layers.items():
        parts = path.split(".")
        blocks.setdefault(".".join(parts[:3]) if ".blocks." in path else path, {})[path] = layer
    portion: dict[str, Any] = {}
    room = AT_ONCE
    for some in blocks.values():
        size = sum(4 * (experts_of(layer) or 1) * layer.weight.shape[-1] ** 2 for layer in some.values())
        if portion and size > room:
            yield portion
            portion, room = {}, AT_ONCE
        portion |= some
        room -= size
    yield portion


def _error(
    matrices: Mapping[str, QuantizedPart],
    packed: Mapping[str, Packed],
    seen: Mapping[str, Moments],
    seconds: Mapping[str, Tensor],
) -> float:
    """The relative error of a layer's outputs (experts weighted by their tokens) or weights."""
    measured = any(name in seen and seen[name].count for name in matrices)
    off, whole = 0.0, 0.0
    for name, part in matrices.items():
        wide = part.weight.flatten(0, -2).float()
        difference = packed[name].dense() - wide
        for_each = [seconds[name] * seen[name].count] if measured else []
        off, whole = off + _squared(difference, *for_each), whole + _squared(wide, *for_each)
    return float((off / max(whole, 1e-30)) ** 0.5)


def _squared(weight: Tensor, second: Tensor | None = None) -> float:
    """tr(W E[x xᵀ] Wᵀ), or without data ‖W‖²."""
    return float(weight.square().sum() if second is None else ((weight @ second) * weight).sum().clamp(min=0))
