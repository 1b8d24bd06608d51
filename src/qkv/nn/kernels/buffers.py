"""What C++ kernels require of the memory that they are given: they neither notice nor survive memory that isn't there."""

from __future__ import annotations

from torch import Tensor


def by_rows(x: Tensor) -> Tensor:
    """The tensor, or a copy in which the numbers of the last axis are adjacent."""
    return x if x.stride(-1) == 1 else x.contiguous()


def check(kernel: str, *tensors: Tensor | None) -> None:
    """Raise ValueError if a tensor is empty, so there is no memory to read or write."""
    for x in tensors:
        if x is not None and not x.numel():
            shapes = ", ".join(str(tuple(each.shape)) for each in tensors if each is not None)
            raise ValueError(f"{kernel} takes tensors with at least one number; got the shapes {shapes}")


def check_apart(kernel: str, written: Tensor, *others: Tensor | None) -> None:
    """Raise ValueError if a tensor that a kernel writes isn't contiguous, or shares memory with other tensors."""
    own = _extent(written)
    if not written.is_contiguous() or any(x is not None and _meet(own, _extent(x)) for x in others):
        raise ValueError(
            f"{kernel} writes to a contiguous tensor that shares no memory with its inputs; got one of shape "
            f"{tuple(written.shape)} and strides {written.stride()} that isn't such; give a new tensor"
        )


def _extent(x: Tensor) -> tuple[int, int]:
    """The addresses of the first byte and after the last one."""
    last = sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.itemsize


def _meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]
