"""Buckets of gradients that are summed over ranks together, during the backward pass (Li et al. 2020, PyTorch DDP)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ....core.batch import to_device
from ....nn.cost.plan.rank_memory import BUCKET_BYTES
from ..direct import Handle
from ..scale import Axis

ALIGNED = 16  # numbers: parameters that are views begin at multiples of it, as matrix products like

Key = tuple[int, tuple[Axis, ...]]
"""The owner of a parameter, and the axes over which its gradient is summed after it is sent to the owner."""


@dataclass(eq=False)
class Bucket:
    """Parameters of one owner, axes and dtype, and during a step the flat sum of their gradients."""

    owner: int
    axes: tuple[Axis, ...]
    parameters: list[nn.Parameter]
    flat: list[Tensor] = field(default_factory=list)  # see `flatten`
    values: Tensor | None = None  # of the parameters, which are `views` of it, see `join`
    views: list[Tensor] = field(default_factory=list)
    works: list[Handle] = field(default_factory=list)
    used: list[bool] = field(default_factory=list)  # which parameters have a gradient on this rank
    waiting: set[int] = field(default_factory=set)  # ids of parameters whose gradient is not there yet

    @torch.no_grad()
    def join(self) -> None:
        """Move the parameters into one flat tensor, which can be sent without a copy."""
        sizes = [-(-p.numel() // ALIGNED) * ALIGNED for p in self.parameters]
        self.values = self.parameters[0].new_zeros(sum(sizes))
        self.views = [
            part[: p.numel()].view_as(p) for part, p in zip(self.values.split(sizes), self.parameters, strict=True)
        ]
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.data = view.copy_(parameter)

    @property
    def joined(self) -> Tensor:
        """The flat tensor of the parameters. Those that were replaced since are joined again."""
        pairs = zip(self.parameters, self.views, strict=False)
        if self.values is None or any(p.data_ptr() != view.data_ptr() for p, view in pairs):
            self.join()
        assert self.values is not None
        return self.values

    def flatten(self) -> list[Tensor]:
        """Take the gradients out of the parameters, as one tensor with zeros for parameters without one. At its end is 1 for
        each parameter that has a gradient, and 0 for others. If there is one parameter, its gradient is not copied, and
        this number is a second tensor."""
        self.used = [p.grad is not None for p in self.parameters]
        parts = [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in self.parameters]
        there = to_device(torch.tensor(self.used, dtype=parts[0].dtype), parts[0].device)
        for parameter in self.parameters:
            parameter.grad = None
        return [*parts, there] if len(parts) == 1 else [torch.cat([*parts, there])]

    def gradients(self, flat: list[Tensor]) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """The parameters that have a gradient on some rank, with views of a sum of `flatten`. Waits for the device only if
        this rank has none for some."""
        there = self.used if all(self.used) else flat[-1][-len(self.parameters) :].tolist()
        for parameter, gradient, ranks in zip(self.parameters, self.unflatten(flat[0]), there, strict=True):
            if ranks:
                yield parameter, gradient

    def unflatten(self, flat: Tensor) -> list[Tensor]:
        """Views of the beginning of a flat tensor, with the shapes of the parameters."""
        sizes = [p.numel() for p in self.parameters]
        parts = flat[: sum(sizes)].split(sizes)
        return [part.view_as(p) for part, p in zip(parts, self.parameters, strict=True)]


Communicate = Callable[[Bucket, Tensor], Handle | None]
"""Starts communicating a flat tensor of a bucket. Returns a handle to wait for, or None if there is nothing to wait for."""


def buckets_of(parameters: Sequence[nn.Parameter], key_of: Callable[[nn.Parameter], Key]) -> list[Bucket]:
    """Put parameters into buckets, in the reverse of their order, in which backward makes their gradients."""
    buckets: list[Bucket] = []
    open_ones: dict[tuple[Key, torch.dtype], tuple[Bucket, int]] = {}
    for parameter in reversed(parameters):
        key = key_of(parameter), parameter.dtype
        size = parameter.numel() * parameter.element_size()
        bucket, used = open_ones.get(key, (None, 0))
        if bucket is None or used + size > BUCKET_BYTES:
            bucket, used = Bucket(*key[0], []), 0
            buckets.append(bucket)
        bucket.parameters.append(parameter)
        open_ones[key] = bucket, used + size
    return buckets


class Reducer:
    """Sums gradients over ranks, bucket by bucket, each as soon as its gradients are there.

    Buckets are communicated in the same order on every rank, which collective operations need.
    """

    def __init__(self, buckets: list[Bucket], communicate: Communicate, overlap: bool = True) -> None:
        self.buckets, self.communicate = buckets, communicate
        self._of = {id(p): bucket for bucket in buckets for p in bucket.parameters}
        self._active, self._next = False, 0
        if overlap:
            for bucket in buckets:
                for parameter in bucket.parameters:
                    parameter.register_post_accumulate_grad_hook(self._ready)

    def begin(self) -> None:
        """The next backward pass is one whose gradients are summed."""
        self._active, self._next = True, 0
        for bucket in self.buckets:
            bucket.waiting = {id(p) for p in bucket.parameters}

    def finish(self) -> None:
        """Communicate what is left, and wait for everything. The sums are then in the buckets."""
        self._active = False
        for bucket in self.buckets[self._next :]:
            self._send(bucket)
        for bucket in self.buckets:
            for work in bucket.works:
                work.wait()
            bucket.works = []

    def _ready(self, parameter: Tensor) -> None:
        if not self._active:
            return
        self._of[id(parameter)].waiting.discard(id(parameter))
        while self._next < len(self.buckets) and not self.buckets[self._next].waiting:
            self._send(self.buckets[self._next])
            self._next += 1

    def _send(self, bucket: Bucket) -> None:
        bucket.flat = bucket.flatten()
        started = [self.communicate(bucket, flat) for flat in bucket.flat]
        bucket.works = [work for work in started if work is not None]
