"""The tensors of a GGUF file as weights that a model is loaded from: quantized as they are stored, or dequantized."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from ....core.spec import brief
from ....nn.quantization.formats import Packed
from ..quantized import CodedWeights
from ..transforms import Shape
from .blocks import dequantize, dtype_of
from .codes import FORMATS, is_kept, packed_of
from .container import Tensors


class GGUFWeights(CodedWeights):
    """Tensors under llama.cpp's names. `matrix` gives quantized ones as they are if `codes` has a form for their type,
    and `read` in fp32, which holds every value of a block exactly.

    All have the dtype of the matrices: norms and biases stand in fp32 in every file. Raises ValueError, when it is made, for
    a type of numbers that is not read.
    """

    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors
        self.shapes: Mapping[str, Shape] = {name: stored.shape for name, stored in tensors.stored.items()}
        count: Counter[torch.dtype] = Counter()
        for name, stored in tensors.stored.items():
            try:
                dtype = dtype_of(stored.type)
            except ValueError as error:
                raise ValueError(f"{stored.path}: the tensor {brief(name)}: {error}") from None
            count[dtype] += prod(stored.shape) if len(stored.shape) > 1 else 1
        self.layers = {name: name for name, stored in tensors.stored.items() if is_kept(stored.type, stored.shape)}
        self.main = count.most_common(1)[0][0] if count else torch.float32

    @property
    def usual_weights(self) -> str | None:
        """The format of most matrices that stay quantized; None if none does."""
        count: Counter[str] = Counter()
        for name in self.layers:
            count[FORMATS[self.tensors.stored[name].type.name]] += prod(self.shapes[name])
        return count.most_common(1)[0][0] if count else None

    def dtype(self, name: str) -> torch.dtype:
        return self.main

    def read(self, name: str) -> Tensor:
        stored = self.tensors.stored[name]
        return dequantize(torch.from_numpy(self.tensors.bytes_of(name)), stored.type, stored.shape)

    def matrix(self, name: str) -> Packed:
        stored = self.tensors.stored[name]
        return packed_of(torch.from_numpy(self.tensors.bytes_of(name)), stored.type, stored.shape)

    def same(self, a: str, b: str) -> bool:
        """Whether two tensors are stored as the same bytes."""
        one, other = (self.tensors.stored[name] for name in (a, b))
        if (one.type, one.shape) != (other.type, other.shape):
            return False
        return bool((self.tensors.bytes_of(a) == self.tensors.bytes_of(b)).all())

    def forget(self, name: str) -> None:
        self.tensors.forget(name)
