"""The tensors of a GGUF file as weights that a model is loaded from: dequantized when they are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from ..transforms import Shape
from ..values import shown
from .blocks import dequantize, dtype_of
from .container import Tensors


class GGUFWeights:
    """Tensors under llama.cpp's names. Quantized ones are given in fp32, which holds every value of a block exactly.

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
                raise ValueError(f"{stored.path}: the tensor {shown(name)}: {error}") from None
            count[dtype] += prod(stored.shape) if len(stored.shape) > 1 else 1
        self.main = count.most_common(1)[0][0] if count else torch.float32

    def dtype(self, name: str) -> torch.dtype:
        return self.main

    def read(self, name: str) -> Tensor:
        stored = self.tensors.stored[name]
        return dequantize(torch.from_numpy(self.tensors.bytes_of(name)), stored.type, stored.shape)

    def same(self, a: str, b: str) -> bool:
        """Whether two tensors are stored as the same bytes."""
        one, other = (self.tensors.stored[name] for name in (a, b))
        if (one.type, one.shape) != (other.type, other.shape):
            return False
        return bool((self.tensors.bytes_of(a) == self.tensors.bytes_of(b)).all())

    def forget(self, name: str) -> None:
        self.tensors.forget(name)
