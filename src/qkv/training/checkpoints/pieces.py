"""Pieces of tensors in the sharded files of a checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from torch import Tensor

Sliceable = TypeVar("Sliceable", bound="CanBeCut")


class CanBeCut(Protocol):
    """A tensor, or one in a file (`slices.Saved`)."""

    def __getitem__(self, places: tuple[slice, ...], /) -> Any: ...


_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.[a-z]+)")
KEY = "pieces"


class TensorPiece(NamedTuple):
    """A block of a tensor that a rank has: its first index on each axis, and the shape of the whole tensor."""

    start: tuple[int, ...]
    shape: tuple[int, ...]

    def of(self, whole: Sliceable, shape: Sequence[int]) -> Sliceable:
        """The block of this shape in the whole tensor."""
        block: Sliceable = whole[tuple(slice(at, at + n) for at, n in zip(self.start, shape, strict=True))]
        return block

    def within(self, outer: TensorPiece) -> TensorPiece:
        """The same block as one of the tensor of which `outer` is a block."""
        return TensorPiece(tuple(a + b for a, b in zip(self.start, outer.start, strict=True)), outer.shape)


class CheckpointShard(NamedTuple):
    """The tensors of one file of a checkpoint, and the pieces that some of them are."""

    tensors: Mapping[str, Tensor]
    pieces: Mapping[str, TensorPiece]


def shard_name(name: str, number: int, of: int) -> str:
    """The name of a shard's file: `model.safetensors` → `model-00001-of-00004.safetensors`. `number` counts from 0."""
    stem, _, suffix = name.rpartition(".")
    return f"{stem}-{number + 1:05d}-of-{of:05d}.{suffix}"


def shards_of(name: str, files: Iterable[str]) -> list[str]:
    """The files that hold the shards of a file, in order; none if it is whole."""
    found = [(match, file) for file in files if (match := _SHARD.fullmatch(file))]
    return sorted(file for match, file in found if match[1] + match[4] == name)


def to_metadata(pieces: Mapping[str, TensorPiece]) -> dict[str, str]:
    """The entry in a safetensors file's metadata for its pieces."""
    return {KEY: json.dumps(pieces)} if pieces else {}


def pieces_in(metadata: Mapping[str, str] | None, path: Path) -> dict[str, TensorPiece]:
    """The pieces that the metadata of a safetensors file names. Raises ValueError if the entry is malformed."""
    text = (metadata or {}).get(KEY, "{}")
    try:
        return {
            str(name): TensorPiece(*(tuple(map(int, axes)) for axes in piece))
            for name, piece in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"{path} has a malformed entry {KEY!r} in its metadata") from None


def rows_of(shape: Sequence[int], size: int, number: int) -> tuple[tuple[int, ...], TensorPiece]:
    """The shape and place of part `number` of `size` equal parts of a tensor's rows, as `torch.chunk` cuts them."""
    length = -(-shape[0] // size)
    start = min(number * length, shape[0])
    own = (min(length, shape[0] - start), *shape[1:])
    return own, TensorPiece((start, *[0] * (len(shape) - 1)), tuple(shape))
