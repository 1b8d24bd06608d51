"""Checksums of tensors in safetensors files, to detect corruption on disk or in copies.

A file's metadata keeps the CRC-32 of each tensor's name, dtype, shape and bytes. Programs that rewrite the file drop the
metadata; the file is then read without checks, as any other library's.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from .spec import brief

KEY = "qkv.crc32"
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.uint64,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
}
"""The dtypes of safetensors files, by their names there."""


def of(name: str, tensor: Tensor) -> int:
    """The CRC-32 of a tensor on the host, with its name, dtype and shape."""
    seed = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
    if not tensor.numel():
        return seed
    return zlib.crc32(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data, seed)


def metadata(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """The metadata to write into a file."""
    return {KEY: json.dumps({name: of(name, tensor) for name, tensor in tensors.items()})}


def order(path: Path) -> None:
    """Sort a new file's metadata by name. The library writes it in any order, and the same weights would give different
    files."""
    with path.open("rb+") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) <= length:  # else Python escapes it differently from the library, and it stays as it is
            file.seek(8)
            file.write(text.ljust(length))


def read(metadata: object, where: str) -> dict[str, int]:
    """The checksums in a file's metadata, if any. Raises ValueError if they are damaged themselves."""
    text = metadata.get(KEY) if isinstance(metadata, Mapping) else None
    if text is None:
        return {}
    try:
        checksums = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        checksums = None
    if not isinstance(checksums, dict) or any(type(value) is not int for value in checksums.values()):
        raise ValueError(f"{where} is damaged: its checksums ({KEY}) are not readable")
    return checksums


def check(name: str, tensor: Tensor, known: Mapping[str, int], where: str) -> None:
    """Raise ValueError, with the names of file and tensor, if the tensor is not the saved one."""
    if name in known and of(name, tensor) != known[name]:
        raise ValueError(
            f"{where} is damaged: the checksum of {brief(name)} differs from the saved one; save or copy the file again"
        )
