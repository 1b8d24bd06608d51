"""Parameters without numbers. `Unfilled` fills new memory with NaN, so parameters that still hold NaN were not
initialized. `without_parameters` puts parameters that will be loaded on the meta device, beside real buffers, and
`Outlining` parameters that will be initialized later."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_ALLOCATORS = {
    torch.ops.aten.empty,
    torch.ops.aten.empty_like,
    torch.ops.aten.empty_strided,
    torch.ops.aten.new_empty,
    torch.ops.aten.new_empty_strided,
}


class Unfilled(TorchDispatchMode):
    """Context in which `torch.empty` and its relatives fill floating-point tensors with NaN."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return (
            False  # nothing is compiled in here, and the wrapper that True gives would import torch._dynamo: a second
        )

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "overloadpacket", func) in _ALLOCATORS and result.is_floating_point():
            result.fill_(float("nan"))
        return result


class Outlining(TorchDispatchMode):
    """Context in which parameters without numbers are made on the meta device, beside real buffers and real parameters that
    their module fills before it registers them. Memory that nothing is written to is not touched.

    keep: numbers of parameters without numbers, in the order in which they are registered, that are made real.
    late: the parameters on the meta device that a module writes to after it registers them, with their numbers.
    lost: whether numbers are lost otherwise, as a module fills a part of a parameter, or computes with one without numbers.
    """

    def __init__(self, keep: Set[int] = frozenset()) -> None:
        super().__init__()
        self.keep, self.late, self.lost = keep, dict[int, nn.Parameter](), False
        self._registered = 0
        self._kept: list[int] = []  # addresses of their memory
        self._shells: list[nn.Parameter] = []
        self._number_of: dict[int, int] = {}  # of parameters on the meta device, by their memory

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # see `Unfilled`

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if func._schema.is_mutable:
            for written in tree_leaves((args, kwargs)):
                self._written(written)
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and not result.is_meta:
            kind = getattr(func, "overloadpacket", func)
            if kind in _ALLOCATORS and result.is_floating_point():
                self._empty.add(_memory(result))
            elif kind is torch.ops.aten.lift_fresh:  # at the end of torch.tensor
                self._empty.discard(_memory(result))
            elif func._schema.returns[0].alias_info is None:
                self.lost = self.lost or (kind not in _ALLOCATORS and any(map(self._is_empty, tree_leaves(args))))
                self._empty.discard(_memory(result))
        return result

    def _is_empty(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor) and not tensor.is_meta and _memory(tensor) in self._empty

    def _taken(self, parameter: Tensor) -> bool:
        """Whether a parameter has no numbers and is to be on the meta device. Its memory is freed afterwards, and others may
        get it."""
        if not self._is_empty(parameter):
            return False
        self._registered += 1
        if self._registered - 1 in self.keep:
            self._kept.append(_memory(parameter))
            return False
        self._empty.discard(_memory(parameter))
        return True

    @property
    def lacks_numbers(self) -> bool:
        """Whether nothing was written to a parameter that is kept."""
        return any(memory in self._empty for memory in self._kept)

    def _made(self, shell: nn.Parameter) -> None:
        self._number_of[_memory(shell)] = self._registered - 1
        self._shells.append(shell)  # whose memory no other may get

    def _written(self, tensor: Any) -> None:
        if not isinstance(tensor, Tensor):
            return
        if tensor.is_meta and (number := self._number_of.get(_memory(tensor))) is not None:
            self.late[number] = next(shell for shell in self._shells if _memory(shell) == _memory(tensor))
        elif self._is_empty(tensor):
            self.lost = self.lost or tensor.nbytes != tensor.untyped_storage().nbytes()
            self._empty.discard(_memory(tensor))

    def __enter__(self) -> Outlining:
        self._empty: set[int] = set()  # addresses of memory that nothing was written to
        self._emptying = without_parameters(self._taken, self._made)
        self._emptying.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._emptying.__exit__(*error)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def unfilled(value: Tensor) -> Tensor:
    """True if nothing was written since the tensor was allocated inside `Unfilled`."""
    return value.isnan()


@contextmanager
def without_parameters(
    chosen: Callable[[Tensor], bool] | None = None, made: Callable[[nn.Parameter], None] | None = None
) -> Iterator[None]:
    """Context in which the modules that this thread makes have real buffers, and parameters on the meta device: all, or
    the chosen ones. `made` is called with each of them."""
    here = threading.get_ident()
    known: dict[int, tuple[weakref.ref[Tensor], nn.Parameter]] = {}  # parameters that a module may register again

    def emptied(module: nn.Module, name: str, parameter: Any) -> Any:
        if threading.get_ident() != here or parameter is None or parameter.is_meta:
            return None
        before, shell = known.get(id(parameter), (lambda: None, None))
        if before() is parameter:
            return shell
        if chosen is not None and not chosen(parameter):
            return None
        shell = nn.Parameter(parameter.to("meta"), parameter.requires_grad)
        known[id(parameter)] = weakref.ref(parameter), shell
        if made is not None:
            made(shell)
        return shell

    handle = register_module_parameter_registration_hook(emptied)
    try:
        yield
    finally:
        handle.remove()
