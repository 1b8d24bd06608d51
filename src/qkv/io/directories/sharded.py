"""Write weights in the Hub's layout: one safetensors file, or shards with an index of which tensor is in which file."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from torch import Tensor

from ...core.spec import brief
from ...training.checkpoints.streaming import Later, stream_tensors
from ..hub.files import INDEX, WEIGHTS
from ..hub.names import Names, StoredPlace
from .layout import MAX_SHARD_SIZE, write_json

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


def write(
    folder: Path,
    names: Names,
    ours: Mapping[str, Tensor],
    max_shard_size: int | str = MAX_SHARD_SIZE,
    computed: Mapping[str, Tensor] | None = None,
) -> None:
    """Write tensors under their names: in one file if `max_shard_size` holds them all, else in several.

    Only the tensors of one entry at a time are in memory besides the model. The last file also gets the `computed` tensors,
    under their names.
    """
    pieces = (piece for entry in names.written() for piece in entry.split())
    shards = list(split(pieces, ours, parsed(max_shard_size)))
    files = [WEIGHTS] if len(shards) == 1 else [_named(i, len(shards)) for i in range(1, len(shards) + 1)]
    computed = computed or {}
    for file, shard in zip(files, shards, strict=True):
        tensors = [one for entry in shard for one in _later(entry, ours)]
        if file == files[-1]:
            rest = computed.items()
            tensors += [Later(name, t.dtype, tuple(t.shape), partial(computed.__getitem__, name)) for name, t in rest]
        stream_tensors(folder / file, tensors)
    if len(shards) > 1:
        places = {name: file for file, shard in zip(files, shards, strict=True) for e in shard for name in e.theirs}
        places |= dict.fromkeys(computed, files[-1])
        size = sum(_bytes(entry, ours) for shard in shards for entry in shard)
        size += sum(tensor.nbytes for tensor in computed.values())
        write_json(folder / INDEX, {"metadata": {"total_size": size}, "weight_map": dict(sorted(places.items()))})


def _later(entry: StoredPlace, ours: Mapping[str, Tensor]) -> list[Later]:
    """The tensors of an entry under their names. They are made together, when the first one is written."""
    made: dict[str, Tensor] = {}

    def make(name: str) -> Tensor:
        if not made:
            made.update(entry.to_theirs(ours))
        return made.pop(name)

    dtype = ours[entry.ours[0]].dtype
    shapes = zip(entry.theirs, entry.their_shapes, strict=True)
    return [Later(name, dtype, tuple(shape), partial(make, name)) for name, shape in shapes]


def split(entries: Iterable[StoredPlace], ours: Mapping[str, Tensor], limit: int) -> Iterable[list[StoredPlace]]:
    """Split the entries, in order, into groups of at most `limit` bytes; a larger entry gets its own group."""
    shard: list[StoredPlace] = []
    room = limit
    for entry in entries:
        size = _bytes(entry, ours)
        if shard and size > room:
            yield shard
            shard, room = [], limit
        shard.append(entry)
        room -= size
    yield shard


def parsed(size: int | str) -> int:
    """Bytes: 5_000_000_000, "5GB" or "4.5 GiB". Raises ValueError for anything else."""
    match = re.fullmatch(r"\s*([\d_]+(?:\.\d+)?)\s*([KMG]I?B|)\s*", str(size).upper())
    count = int(float(match[1]) * UNITS[match[2]]) if match else 0
    if count < 1:
        raise ValueError(f"the size of a shard is a number of bytes such as 5GB or 500MiB, not {brief(size)}")
    return count


def _bytes(entry: StoredPlace, ours: Mapping[str, Tensor]) -> int:
    return sum(map(math.prod, entry.shapes)) * ours[entry.ours[0]].element_size()


def _named(number: int, count: int) -> str:
    return f"model-{number:05}-of-{count:05}.safetensors"
