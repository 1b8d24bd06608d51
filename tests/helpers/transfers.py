"""Finds where a computation waits for its device: a device without data, the meta device, on which every read is noted."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from qkv.core.graphs import Operator
from qkv.training.optimizers import adamw

# What reads a tensor on the host, and what the host makes do with instead.
READS: dict[str, Callable[..., Any]] = {
    "__bool__": lambda x: False,
    "__int__": lambda x: 1,
    "__index__": lambda x: 1,
    "__float__": lambda x: 1.0,
    "item": lambda x: 1,
    "tolist": lambda x: torch.ones(x.shape, dtype=torch.int64).tolist(),
    "numpy": lambda x, **_: torch.ones(x.shape, dtype=x.dtype).numpy(),
    "cpu": lambda x, **_: torch.zeros(x.shape, dtype=x.dtype),
    "nonzero": lambda x, **_: torch.empty(x.numel(), x.ndim, dtype=torch.int64, device=x.device),
    "is_nonzero": lambda x: False,
    "equal": lambda x, y: True,
    "masked_select": lambda x, mask: x.new_empty(x.numel()),
    "unique": lambda x, **_: x,
}


def _caller(*folders: str) -> str:
    """The innermost place in one of the folders, as `file:function`."""
    frames = [f for f in traceback.extract_stack() if any(folder in f.filename for folder in folders)]
    return f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "?"


class Transfers(TorchFunctionMode):
    """Notes, as `file:function`, the places in qkv from which tensors of the meta device are read."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(function, "__name__", "")
        first = next((x for x in args if isinstance(x, Tensor)), None)
        on_device = first is not None and first.device.type == "meta"
        if on_device and name in READS:
            self._note(name)
            return READS[name](*args, **kwargs)
        if on_device and name == "to" and _to_host(args[1:], kwargs):
            self._note("to the host")
            return torch.zeros(first.shape, dtype=first.dtype)  # type: ignore[union-attr]
        if name == "copy_" and not _is_meta(args[0]) and _is_meta(args[1]):
            self._note("copy_ to the host")
            return args[0]
        if name in ("__getitem__", "__setitem__") and on_device and _masks(args[1]):
            self._note("index by a mask")
            if name == "__getitem__":
                return first.flatten(0, _masks(args[1]) - 1)  # type: ignore[union-attr]
        by_tensor = name == "repeat_interleave" and on_device and any(_is_meta(x) for x in args[1:])
        if by_tensor and kwargs.get("output_size") is None:
            self._note("repeat_interleave without a size")
        return function(*args, **kwargs)

    def _note(self, what: str) -> None:
        self.places.append(f"{_caller('/src/qkv/')}: {what}")


class Reads(TorchFunctionMode):
    """Notes the places in qkv and in FSDP2 that read a tensor of any device on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        if name in READS:
            self.places.append(f"{_caller('/src/qkv/', '/fsdp/')}: {name}")
        return function(*args, **(kwargs or {}))


def _is_meta(x: Any) -> bool:
    return isinstance(x, Tensor) and x.device.type == "meta"


def _to_host(args: Any, kwargs: dict[str, Any]) -> bool:
    named = [x for x in (*args, *kwargs.values()) if isinstance(x, str | torch.device)]
    return any(torch.device(x).type == "cpu" for x in named)


def _masks(index: Any) -> int:
    """The dimensions of a mask that is an index; 0 for other indices."""
    some = index if isinstance(index, tuple) else (index,)
    return max((x.ndim for x in some if isinstance(x, Tensor) and x.dtype == torch.bool), default=0)


@contextmanager
def transfers() -> Iterator[Transfers]:
    """Inside the block, reads of the meta device are noted. It counts as a device without autocast, with fused optimizers.

    The loss of tokens is an operator, which has no body on the meta device; its body is run beside it.
    """
    enabled, autocast, call, fused = torch.is_autocast_enabled, torch.autocast, Operator.__call__, adamw.FUSED_DEVICES

    def with_body(self: Operator, *inputs: Any) -> Any:
        if self.name == "linear_cross_entropy" and any(map(_is_meta, inputs)):
            with torch.no_grad():
                self.function(*inputs)
        return call(self, *inputs)

    torch.is_autocast_enabled = lambda kind="cpu": kind != "meta" and enabled(kind)  # type: ignore[assignment]
    torch.autocast = lambda kind, *a, **k: nullcontext() if kind == "meta" else autocast(kind, *a, **k)  # type: ignore[assignment,misc]
    Operator.__call__ = with_body  # type: ignore[method-assign]
    adamw.FUSED_DEVICES = fused | {"meta"}
    mode = Transfers()
    try:
        with mode:
            yield mode
    finally:
        torch.is_autocast_enabled, torch.autocast = enabled, autocast  # type: ignore[misc]
        Operator.__call__, adamw.FUSED_DEVICES = call, fused  # type: ignore[method-assign]
