"""Write a GGUF file, version 3: the header first, then each tensor as it is made, so one is in memory at a time.

Metadata are Python values: a bool, an int (unsigned, 32 bits), a float (fp32), a string, a list of strings, or a NumPy
array of int32, float32, uint8 or bool.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from torch import Tensor

from ....core import atomic
from ..transforms import Shape
from .block_types import BlockType
from .container import ARRAY, LONGEST_NAME, MAGIC, STRING, USUAL_ALIGNMENT

VERSION = 3
_ELEMENTS = {"uint8": 0, "int32": 5, "float32": 6, "bool": 7}
_UINT32, _FLOAT32, _BOOL = 4, 6, 7


@dataclass(frozen=True)
class Written:
    """A tensor to write: its shape in PyTorch's order, and a function that gives its bytes."""

    name: str
    type: BlockType
    shape: Shape
    make: Callable[[], Tensor]

    @property
    def size(self) -> int:
        return math.prod(self.shape) // self.type.width * self.type.size


def write(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Sequence[Written],
    advance: Callable[[int], None] = lambda written: None,
) -> None:
    """Write a file under a temporary name, then rename it. `advance` is called with the bytes of each tensor written."""
    header = _header(metadata, tensors)
    atomic.check_room(path, len(header) + sum(tensor.size for tensor in tensors))
    atomic.make_folder(path.parent)
    with atomic.replacing(path) as beside, beside.open("wb") as file:
        file.write(header)
        _pad(file)
        for tensor in tensors:
            data = tensor.make()
            assert data.nbytes == tensor.size, tensor.name
            file.write(data.contiguous().numpy().data)
            _pad(file)
            advance(tensor.size)


def _pad(file: BinaryIO) -> None:
    file.write(bytes(-file.tell() % USUAL_ALIGNMENT))


def _header(metadata: Mapping[str, Any], tensors: Sequence[Written]) -> bytes:
    parts = [MAGIC, struct.pack("<IQQ", VERSION, len(tensors), len(metadata))]
    for key, value in metadata.items():
        parts += [_string(key), _value(value)]
    offset = 0
    for tensor in tensors:
        assert len(tensor.name.encode()) < LONGEST_NAME, tensor.name
        parts.append(_string(tensor.name))
        parts.append(struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *reversed(tensor.shape)))
        parts.append(struct.pack("<IQ", tensor.type.id, offset))
        offset += -(-tensor.size // USUAL_ALIGNMENT) * USUAL_ALIGNMENT
    return b"".join(parts)


def _string(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    """The type and the value."""
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", _FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _string(value)
    if isinstance(value, np.ndarray):
        return struct.pack("<IIQ", ARRAY, _ELEMENTS[value.dtype.name], value.size) + value.tobytes()
    return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(map(_string, value))
