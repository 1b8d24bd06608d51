"""Track the memory of live tensors while a program runs on fake tensors, which have shapes but no contents."""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves

from ..kernels.products import onednn
from ..layers.losses import rows_at_once


def _loss_workspace(hidden: Tensor, weight: Tensor, *others: Any) -> int:
    """Bytes of a chunk of logits; with logits narrower than the weight, also of narrow copies of it and its gradient."""
    narrow = weight.numel() * hidden.element_size() if weight.dtype != hidden.dtype else 0
    copies = 2 if _trains_weight(*others) else 1
    return rows_at_once(hidden, len(weight)) * len(weight) * hidden.element_size() + copies * narrow


def _trains_weight(*others: Any) -> bool:
    """Whether the loss computes the gradient of the weight. `others` are its arguments after the weight."""
    _, weight, _ = others[-1]
    return bool(weight)


# Temporary bytes of our custom operators, by their arguments; other operators count by their outputs.
WORKSPACE: dict[str, Callable[..., int]] = {"qkv::linear_cross_entropy": _loss_workspace}


def _of_weight_gradient(first: Tensor, second: Tensor) -> int:
    """Bytes that the gradient of a weight, dᵀ x, allocates beside its result. Only there is the first operand transposed."""
    if first.is_contiguous() or not onednn.serves(first, second.T):
        return 0
    return onednn.workspace(len(second), len(first), second.shape[1])


def _of_vocabulary_gradient(hidden: Tensor, weight: Tensor, *others: Any) -> int:
    """The same for a chunk of logits."""
    rows = rows_at_once(hidden, len(weight))
    if not (_trains_weight(*others) and onednn.serves(hidden[:rows], weight)):
        return 0
    return onednn.workspace(rows, *weight.shape)


# Temporary bytes of the gradients of weights that `kernels.products.onednn` computes in fp32: packed panels, or transposed
# copies. Its other products allocate next to nothing. The prediction runs on tensors without contents, for which PyTorch's
# operators compute these gradients without any copy, so the bytes are added here.
COPIES: dict[str, Callable[..., int]] = {
    "aten::mm": _of_weight_gradient,
    "qkv::linear_cross_entropy": _of_vocabulary_gradient,
}

# Errors of programs that read the values of a fake tensor.
ASKS: tuple[type[Exception], ...] = (DataDependentOutputException, DynamicOutputShapeException)

_MADE: dict[Hashable, tuple[int, torch.Size, torch.dtype]] = {}  # by `Live.once`: temporary bytes, shape and dtype
_DEVICE = torch.ops.prim.device.default


class Live(TorchDispatchMode):
    """Context that counts the bytes of live storages, `now` and at `peak`.

    Enter it within a `FakeTensorMode`: operators then run on shapes alone, as PyTorch's autograd and autocast call
    them, so any model is measured as it is. With `copies`, copies that products make on this CPU count too. `sizes` are
    the bytes at each operator, and `program` is a hash of which operators ran, with which temporary bytes.
    """

    def __init__(self, copies: bool = False) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._copies = copies
        self._known: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()
        self.program, self.sizes = 0, array("q")

    def restart(self) -> None:
        """Forget the peak, and which operators ran."""
        self.peak = self.now
        self.program, self.sizes = 0, array("q", [self.now])

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if func is _DEVICE and isinstance(args[0], FakeTensor):  # most calls by far
            return args[0].fake_device
        out, name = func(*args, **(kwargs or {})), func.name()
        for tensor in (out,) if isinstance(out, Tensor) else tree_leaves(out):
            if isinstance(tensor, Tensor):
                self.hold(tensor)
        passing = WORKSPACE[name](*args) if name in WORKSPACE else 0
        if self._copies and name in COPIES:
            passing += COPIES[name](*args)
        self._pass(name, passing)
        return out

    def once(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """What `make` returns: of each key it runs once, and then an empty tensor and the same temporary bytes count."""
        if key not in _MADE:
            before, peak, program, operators = self.now, self.peak, self.program, len(self.sizes)
            self.peak = self.now
            made = make()
            assert self.now - before == made.nbytes, "another tensor stays, or this one looks into a larger one"
            _MADE[key] = self.peak - self.now, made.shape, made.dtype
            del made, self.sizes[operators:]
            self.peak, self.program = peak, program
        passing, shape, dtype = _MADE[key]
        made = torch.empty(shape, dtype=dtype)
        self._pass(key, passing)
        return made

    def _pass(self, name: Hashable, passing: int) -> None:
        """Count temporary bytes."""
        self.program = hash((self.program, name, passing))
        self.sizes.append(self.now + passing)
        self.peak = max(self.peak, self.now + passing)

    def hold(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage in self._known:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._release, size)

    def hold_model(self, model: nn.Module) -> None:
        for tensor in (*model.parameters(), *model.buffers()):
            self.hold(tensor)

    def _release(self, size: int) -> None:
        self.now -= size


class _WithoutContents(FakeTensorMode):
    def once(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """`Live.once` if memory is counted, as `quantization.product` does for each matrix."""
        modes = [mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, Live)]
        return modes[-1].once(key, make) if modes else make()


def without_contents() -> FakeTensorMode:
    """Return a context in which tensors are made without memory for their contents."""
    return _WithoutContents(allow_non_fake_inputs=True)
