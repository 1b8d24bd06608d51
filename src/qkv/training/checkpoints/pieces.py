"""Pieces of tensors in the sharded files of a checkpoint, and their reassembly."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from safetensors import safe_open
from torch import Tensor

_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.[a-z]+)")
KEY = "pieces"


class Piece(NamedTuple):
    """The rows that a rank has of a tensor, start … start + its own length − 1, out of `rows`."""

    start: int
    rows: int


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
        return {str(name): Piece(int(start), int(rows)) for name, (start, rows) in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"{path} has a malformed entry {KEY!r} in its metadata") from None


def joined(shards: Iterable[tuple[Mapping[str, Tensor], Mapping[str, Piece]]], where: str) -> dict[str, Tensor]:
    """Whole tensors from the shards of all ranks. Raises ValueError if rows are missing."""
    whole: dict[str, Tensor] = {}
    have: dict[str, int] = {}
    for tensors, pieces in shards:
        for name, tensor in tensors.items():
            if name not in pieces:
                whole[name] = tensor
                continue
            start, rows = pieces[name]
            if name not in whole:
                whole[name], have[name] = tensor.new_empty(rows, *tensor.shape[1:]), 0
            whole[name][start : start + len(tensor)] = tensor
            have[name] += len(tensor)
    for name, rows in have.items():
        if rows != len(whole[name]):
            raise ValueError(f"{where} hold {rows} of the {len(whole[name])} rows of {name}; a shard is missing")
    return whole


def rows_of(tensor: Tensor, size: int, number: int) -> tuple[Tensor, Piece]:
    """Part `number` of `size` equal parts of a tensor's rows, as `torch.chunk` cuts them."""
    length = -(-len(tensor) // size)
    start = min(number * length, len(tensor))
    return tensor[start : start + length], Piece(start, len(tensor))
