"""`CodedWeights`: a file's tensors, of which some are quantized matrices; `QuantizedWeights`, in which the parts of such a
matrix appear as one tensor, `X.weight`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ....nn.quantization.formats import Packed
from ....nn.quantization.scheme import Activations
from ..files import WeightFiles
from ..names import Names, StoredPlace
from ..transforms import SAME, Shape, Stacked, TensorTransform, TransformChain, Transposed
from .layout import QuantizedLayout


class CodedWeights:
    """The base of weights with quantized matrices: `layers` has the names of these."""

    layers: Mapping[str, str]

    def matrix(self, name: str) -> Packed:
        """A quantized matrix as it is stored. Raises ValueError, naming it, if its tensors don't fit together."""
        raise NotImplementedError

    def activations(self, name: str) -> Activations:
        """How the inputs of a quantized layer are quantized."""
        return "none"


class QuantizedWeights(CodedWeights):
    """The tensors of `weights`, whose quantized matrices have a layout.

    A quantized matrix has the name `X.weight` and the shape (d_out, d_in). `matrix` returns it as it is stored, and `read`
    dequantized.
    """

    def __init__(self, weights: WeightFiles, layout: QuantizedLayout, where: str) -> None:
        self.weights, self.layout, self.where = weights, layout, where
        self.layers = {f"{layer}.weight": layer for layer in layout.layers(weights)}
        if not self.layers:
            raise ValueError(f"{where}: its configuration says that weights are quantized, and none is")
        parts = {layer + part for layer in self.layers.values() for part in layout.parts}
        shapes = {name: shape for name, shape in weights.shapes.items() if name not in parts}
        self.shapes: Mapping[str, Shape] = shapes | {name: self._shape(layer) for name, layer in self.layers.items()}

    def _shape(self, layer: str) -> Shape:
        try:
            return self.layout.shape(layer, self.weights)
        except (RuntimeError, KeyError, ValueError, TypeError) as error:
            raise ValueError(f"{self.where}: the tensors of {layer} don't fit together ({error})") from None

    def dtype(self, name: str) -> torch.dtype:
        return torch.float32 if name in self.layers else self.weights.dtype(name)

    def read(self, name: str) -> Tensor:
        return self.matrix(name).dense() if name in self.layers else self.weights.read(name)

    def forget(self, name: str) -> None:
        if name not in self.layers:
            self.weights.forget(name)

    def matrix(self, name: str) -> Packed:
        try:
            packed = self.layout.read(self.layers[name], self.weights)
        except (RuntimeError, KeyError, IndexError, ValueError, TypeError) as error:
            raise ValueError(f"{self.where}: the tensors of {self.layers[name]} don't fit together ({error})") from None
        (d_out, d_in), groups = packed.shape, packed.scales.shape
        if groups[0] != d_out or not groups[1] or d_in % groups[1]:
            raise ValueError(
                f"{self.where}: {self.layers[name]} is a matrix of {packed.shape} with scales of {tuple(groups)}, which "
                "don't divide its rows"
            )
        return packed

    def activations(self, name: str) -> Activations:
        return self.layout.activations(self.layers[name])


def by_rows(names: Names, weights: WeightFiles) -> Names:
    """Names in which quantized matrices are (d_out, d_in) in the file, as layouts give them: not transposed."""
    if not isinstance(weights, QuantizedWeights):
        return names
    entries = tuple(_by_rows(entry) if weights.layers.keys() & set(entry.theirs) else entry for entry in names.entries)
    return replace(names, entries=entries)


def _by_rows(entry: StoredPlace) -> StoredPlace:
    """Experts that are one tensor here and there are a matrix there, in which they stand below one another."""
    if entry.how is SAME:
        return replace(entry, shapes=tuple((math.prod(shape[:-1]), shape[-1]) for shape in entry.shapes))
    return replace(entry, how=_upright(entry.how))


def _upright(how: TensorTransform) -> TensorTransform:
    if isinstance(how, Transposed):
        return SAME
    if isinstance(how, TransformChain):
        steps = [step for step in how.steps if not isinstance(step, Transposed)]
        return steps[0] if len(steps) == 1 else TransformChain(*steps)
    return how


def matrices_of(entry: StoredPlace, weights: CodedWeights) -> dict[str, tuple[Packed, Activations]] | None:
    """The quantized matrices of an entry by our names; None if rows and groups don't stay together, so the weights
    have to be dequantized."""
    if not set(entry.theirs) <= weights.layers.keys():
        return None
    if isinstance(entry.how, Stacked):
        whole = _below_one_another([weights.matrix(name) for name in entry.theirs])
        return None if whole is None else {entry.ours[0]: (whole, weights.activations(entry.theirs[0]))}
    if not entry.how.keeps_rows:
        return None
    if entry.how is SAME:
        pairs = zip(entry.ours, entry.theirs, strict=True)
        return {ours: (weights.matrix(theirs), weights.activations(theirs)) for ours, theirs in pairs}
    whole, activations = weights.matrix(entry.theirs[0]), weights.activations(entry.theirs[0])
    parts = {name: whole.tensors()[name] for name in whole.tensors() if name != "order"}
    divided = {
        name: entry.how.to_ours([tensor], [(shape[0], tensor.shape[1]) for shape in entry.shapes])
        for name, tensor in parts.items()
    }
    shared = {} if whole.order is None else {"order": whole.order}
    return {
        name: (whole.with_tensors({part: tensors[i] for part, tensors in divided.items()} | shared), activations)
        for i, name in enumerate(entry.ours)
    }


def _below_one_another(experts: Sequence[Packed]) -> Packed | None:
    """Stack the matrices of all experts, or return None if their formats differ."""
    parts = [one.tensors() for one in experts]
    alike = len({(e.format.name, e.scales.shape[1], tuple(p)) for e, p in zip(experts, parts, strict=True)}) == 1
    if not alike or experts[0].order is not None:
        return None
    tensors = {name: torch.cat([raw(part[name]) for part in parts]).view(parts[0][name].dtype) for name in parts[0]}
    return experts[0].with_tensors(tensors)


def raw(tensor: Tensor) -> Tensor:
    """A tensor whose rows PyTorch can move: fp8 as bytes."""
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor
