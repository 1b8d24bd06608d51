"""Devices by name (the CPU, a CUDA device, an Apple GPU), and buffers that keep their precision when a model is cast."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Self, TypeVar

import torch
from torch import Tensor, nn

from .several import shown
from .spec import brief, counted, nearest

DEVICES = ("auto", "cpu", "cuda", "mps")


def choose(name: str | torch.device = "auto") -> torch.device:
    """`auto`, `cpu`, `cuda` (or `cuda:1`), `mps`. Raises ValueError if the machine lacks the device."""
    if isinstance(name, torch.device):
        return name
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if _has_mps() else "cpu")
    if not isinstance(name, str):
        raise ValueError(f"a device is one of {', '.join(DEVICES)} or a torch.device, not {shown(name)}")
    kind, _, index = name.partition(":")
    if kind not in DEVICES[1:] or (index and not index.isdecimal()):
        raise ValueError(f"there is no device {brief(name)}; {nearest(kind, DEVICES)}")
    if kind == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(index or 0) >= count:
            seen = counted(count, "CUDA device") if count else "no CUDA device"
            raise ValueError(
                f"this machine has {seen} that PyTorch {torch.__version__} can use; take --device cpu or auto"
            )
    if kind == "mps" and not _has_mps():
        raise ValueError("this machine has no Apple GPU that PyTorch can use (mps); take --device cpu or auto")
    return torch.device(name)


def _has_mps() -> bool:
    return torch.backends.mps.is_available()


class KeepsDtype(nn.Module):
    """Base class of modules with buffers, named in `exact`, that casting a model never makes narrower."""

    exact: ClassVar[tuple[str, ...]] = ()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = {name: getattr(self, name) for name in self.exact}
        super()._apply(fn, recurse)
        for name, tensor in before.items():
            now = getattr(self, name)
            constant = isinstance(tensor, Tensor) and not isinstance(tensor, nn.Parameter)
            if constant and torch.promote_types(now.dtype, tensor.dtype) != now.dtype:
                setattr(self, name, tensor.to(now.device))
        return self


DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
"""Dtypes of numbers by their short names, of weights and of what is computed in."""
T = TypeVar("T")

LONG_NAMES = {
    "float64": "fp64",
    "double": "fp64",
    "float32": "fp32",
    "float": "fp32",
    "float16": "fp16",
    "half": "fp16",
}
LONG_NAMES |= {"bfloat16": "bf16"}
"""PyTorch's names of the same. A dtype or precision may be given by either."""


def short_name(dtype: T) -> T | str:
    """The short name of a dtype that is given by one of its names; anything else as it is."""
    return LONG_NAMES.get(dtype, dtype) if isinstance(dtype, str) else dtype


def dtype_of(dtype: str | torch.dtype | None) -> torch.dtype | None:
    """A dtype of weights, which may be given by name; None stays None. Raises ValueError for another name."""
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    name = short_name(dtype)
    if not isinstance(name, str) or name not in DTYPES:
        raise ValueError(f"there is no dtype {brief(dtype)} for weights; {nearest(dtype, [*LONG_NAMES, *DTYPES])}")
    return DTYPES[name]
