"""Counts the bytes of all storages that are alive, also those that are shrunk and grown in place, as FSDP2 does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """peak: the most bytes that storages had at any operation, of those seen inside the block and of the tensors given."""

    def __init__(self, *known: Tensor) -> None:
        super().__init__()
        self.peak = 0
        self._storages: dict[int, StorageWeakRef] = {}
        self._see(known)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        self._see([*tree_leaves((args, kwargs)), *tree_leaves(out)])
        self.peak = max(self.peak, self.now())
        return out

    def _see(self, values: Any) -> None:
        for x in values:
            if isinstance(x, Tensor) and not x.is_meta:
                storage = getattr(x, "_local_tensor", x).untyped_storage()
                self._storages.setdefault(storage._cdata, StorageWeakRef(storage))

    def now(self) -> int:
        """The bytes that are alive."""
        total = 0
        for key, weak in list(self._storages.items()):
            storage = torch.UntypedStorage._new_with_weak_ptr(weak.cdata)
            if storage is None:
                del self._storages[key]
            else:
                total += storage.nbytes()
        return total
