"""NaN and infinite numbers in files of weights: how they are found, and the warning of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

import torch
from torch import Tensor

from ...nn.layers.quantized import QuantizedMatrix
from .names import listed

_NO_NUMBER = 0xFF  # a scale of mxfp4, whose others are powers of 2


def is_finite(weight: Tensor | QuantizedMatrix) -> bool:
    """Whether all numbers of a tensor, or of a quantized matrix, are finite. This takes one pass over memory."""
    if isinstance(weight, QuantizedMatrix):
        scales, parts = weight.scales, weight.packed.tensors().values()
        if scales.dtype == torch.uint8 and scales.numel() and scales.max() == _NO_NUMBER:
            return False
        return all(is_finite(part) for part in parts if part.is_floating_point())
    if not weight.numel():
        return True
    if weight.dtype == torch.float8_e4m3fn:  # has NaN and no infinities
        return not (weight.view(torch.uint8) | 0x80).eq(0xFF).any()
    numbers = weight if weight.itemsize > 1 else weight.float()
    # The sum of large numbers may overflow.
    return math.isfinite(numbers.sum()) or all(map(math.isfinite, numbers.aminmax()))


def warn_of_no_numbers(found: Mapping[str, bool], where: str, dtype: torch.dtype, stacklevel: int = 3) -> None:
    """Warn of tensors with NaN or infinite numbers. `found` says for each whether they are in the file itself."""
    if not found:
        return
    kind = str(dtype).removeprefix("torch.")
    advice = "the training that wrote them may have diverged, or the file is damaged"
    if not any(found.values()):
        advice = f"the file has numbers above {kind}'s largest, {torch.finfo(dtype).max:g}; load it in another dtype"
    warnings.warn(
        f"{where}: NaN or infinite numbers in {listed(sorted(found))}, so outputs are not usable; {advice}",
        stacklevel=stacklevel,
    )
