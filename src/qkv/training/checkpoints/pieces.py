"""Pieces of tensors in the sharded files of a checkpoint, and their reassembly."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from safetensors import safe_open
from torch import Tensor

_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.[a-z]+)")
KEY = "pieces"


class Piece(NamedTuple):
    """A block of a tensor that a rank has: its first index on each axis, and the shape of the whole tensor."""

    start: tuple[int, ...]
    shape: tuple[int, ...]

    def of(self, whole: Tensor, shape: Sequence[int]) -> Tensor:
        """The block of this shape in the whole tensor."""
        return whole[tuple(slice(at, at + n) for at, n in zip(self.start, shape, strict=True))]

    def within(self, outer: Piece) -> Piece:
        """The same block as one of the tensor of which `outer` is a block."""
        return Piece(tuple(a + b for a, b in zip(self.start, outer.start, strict=True)), outer.shape)


class Shard(NamedTuple):
    """The tensors of one file of a checkpoint, and the pieces that some of them are."""

    tensors: Mapping[str, Tensor]
    pieces: Mapping[str, Piece]


def shard_name(name: str, number: int, of: int) -> str:
    """The name of a shard's file: `model.safetensors` → `model-00001-of-00004.safetensors`. `number` counts from 0."""
    stem, _, suffix = name.rpartition(".")
    return f"{stem}-{number + 1:05d}-of-{of:05d}.{suffix}"


def shards_of(name: str, files: Iterable[str]) -> list[str]:
    """The files that hold the shards of a file, in order; none if it is whole."""
    found = [(match, file) for file in files if (match := _SHARD.fullmatch(file))]
    return sorted(file for match, file in found if match[1] + match[4] == name)


def to_metadata(pieces: Mapping[str, Piece]) -> dict[str, str]:
    """The entry in a safetensors file's metadata for its pieces."""
    return {KEY: json.dumps(pieces)} if pieces else {}


def read_pieces(path: Path) -> dict[str, Piece]:
    """The pieces that a safetensors file names. Raises ValueError if the entry is malformed."""
    with safe_open(path, "pt") as file:
        text = (file.metadata() or {}).get(KEY, "{}")
    try:
        return {
            str(name): Piece(*(tuple(map(int, axes)) for axes in piece)) for name, piece in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"{path} has a malformed entry {KEY!r} in its metadata") from None


def joined(shards: Iterable[tuple[Mapping[str, Tensor], Mapping[str, Piece]]], where: str) -> dict[str, Tensor]:
    """Whole tensors from the shards of all ranks. Raises ValueError if rows are missing."""
    whole: dict[str, Tensor] = {}
    numbers: dict[str, dict[tuple[int, ...], int]] = {}
    for tensors, pieces in shards:
        for name, tensor in tensors.items():
            if name not in pieces:
                whole[name] = tensor
                continue
            piece = pieces[name]
            if name not in numbers:
                whole[name], numbers[name] = tensor.new_empty(piece.shape), {}
            piece.of(whole[name], tensor.shape).copy_(tensor)
            numbers[name][piece.start] = tensor.numel()  # copies of a block count once
    for name, blocks in numbers.items():
        if sum(blocks.values()) != whole[name].numel():
            raise ValueError(
                f"{where} hold {sum(blocks.values())} of the {whole[name].numel()} numbers of {name}; a shard is missing"
            )
    return whole


def rows_of(shape: Sequence[int], size: int, number: int) -> tuple[tuple[int, ...], Piece]:
    """The shape and place of part `number` of `size` equal parts of a tensor's rows, as `torch.chunk` cuts them."""
    length = -(-shape[0] // size)
    start = min(number * length, shape[0])
    own = (min(length, shape[0] - start), *shape[1:])
    return own, Piece((start, *[0] * (len(shape) - 1)), tuple(shape))
