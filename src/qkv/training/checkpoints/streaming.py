"""Write a safetensors file one tensor at a time, so not all have to be in memory at once."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ...core import atomic, checksums

_NAMES = {dtype: name for name, dtype in checksums.DTYPES.items()}


class Later(NamedTuple):
    """A tensor that is computed when it is written."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    make: Callable[[], Tensor]


def stream_tensors(path: Path, tensors: Sequence[Later]) -> None:
    """Atomically replace a safetensors file, with checksums, by tensors that are made one after another.

    Tensors with wide dtypes come first, so all tensors are aligned. Otherwise, the given order is kept.
    """
    tensors = sorted(tensors, key=lambda one: -one.dtype.itemsize)
    entries: dict[str, object] = {}
    at = 0
    for one in tensors:
        size = one.dtype.itemsize * math.prod(one.shape)
        entries[one.name] = {"dtype": _NAMES[one.dtype], "shape": list(one.shape), "data_offsets": [at, at + size]}
        at += size
    sums = {one.name: 2**32 - 1 for one in tensors}  # as long as any
    length = len(_header(entries, sums))
    length += -length % 8
    atomic.check_room(path, at)
    with atomic.replacing(path) as beside, beside.open("wb") as file:
        file.write(length.to_bytes(8, "little") + bytes(length))
        for one in tensors:
            data = one.make().detach().to("cpu", one.dtype).contiguous()
            assert tuple(data.shape) == one.shape, one.name
            sums[one.name] = checksums.of(one.name, data)
            file.write(data.reshape(-1).view(torch.uint8).numpy().data)
        file.seek(8)
        file.write(_header(entries, sums).ljust(length))


def _header(entries: Mapping[str, object], sums: Mapping[str, int]) -> bytes:
    metadata = {"format": "pt", checksums.KEY: json.dumps(sums)}
    return json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()
