"""`digest`: a checksum of an example or an item, equal for equal values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor


def digest(value: object) -> str:
    """A checksum of dictionaries, sequences, arrays, tensors and scalars, nested in any way."""
    checksum = hashlib.blake2b(digest_size=16)
    _update(checksum, value)
    return checksum.hexdigest()


def _update(checksum: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray) and value.dtype != object:
        checksum.update(f"array {value.dtype} {value.shape} ".encode())
        checksum.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        checksum.update(f"mapping {len(value)} ".encode())
        for name in sorted(value, key=str):
            _update(checksum, name)
            _update(checksum, value[name])
    elif isinstance(value, list | tuple | np.ndarray):
        checksum.update(f"sequence {len(value)} ".encode())
        for item in value:
            _update(checksum, item)
    else:
        checksum.update(f"{value!r} ".encode())
