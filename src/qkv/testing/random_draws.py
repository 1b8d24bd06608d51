"""`RandomDraws`: notices whether operations draw random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode


class RandomDraws(TorchDispatchMode):
    """A context in which `seen` becomes true when an operation draws random numbers."""

    seen = False

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        attends = "attention" in str(func)  # tagged for its dropout, which evaluation does not have
        self.seen |= torch.Tag.nondeterministic_seeded in func.tags and not attends
        return func(*args, **(kwargs or {}))
