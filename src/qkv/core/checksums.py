"""A checksum of each tensor of a safetensors file, kept in the file's metadata, to find what a disk or a copy changed.

It is the CRC-32 of the tensor's name, dtype, shape and bytes. Programs that rewrite such a file drop its metadata, and the
file is then read as any other library's.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

KEY = "qkv.crc32"


def of(name: str, tensor: Tensor) -> int:
    """The checksum of a tensor on the host."""
    seed = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
    if not tensor.numel():
        return seed
    return zlib.crc32(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data, seed)


def metadata(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """What to write into a file's metadata."""
    return {KEY: json.dumps({name: of(name, tensor) for name, tensor in tensors.items()})}


def order(path: Path) -> None:
    """Put a new file's metadata in the order of their names. The library writes them in any, and the same weights would
    make other files each time."""
    with path.open("rb+") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) <= length:  # else it escapes otherwise than the library, and stays as it is
            file.seek(8)
            file.write(text.ljust(length))


def read(metadata: object, where: str) -> dict[str, int]:
    """The checksums in a file's metadata; none where it has none. Raises ValueError where they are damaged themselves."""
    said = metadata.get(KEY) if isinstance(metadata, Mapping) else None
    if said is None:
        return {}
    try:
        found = json.loads(said)
    except (TypeError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or any(type(value) is not int for value in found.values()):
        raise ValueError(f"{where} is damaged: its checksums ({KEY}) are not readable")
    return found


def check(name: str, tensor: Tensor, known: Mapping[str, int], where: str) -> None:
    """Raises ValueError naming the file and the tensor whose numbers are not those that were saved."""
    if name in known and of(name, tensor) != known[name]:
        raise ValueError(
            f"{where} is damaged: the checksum of {name!r} is not the one that it was saved with; save or copy it again"
        )
