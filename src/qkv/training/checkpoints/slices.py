"""`Saved`: a tensor of a checkpoint that is still in its files, of which a rank reads the part that it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .pieces import TensorPiece, pieces_in


class SavedBlock(NamedTuple):
    """A part of a tensor in one file: its first index on each axis, and its shape."""

    path: Path
    start: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Saved:
    """A block of a saved tensor, of the shape `shape` from `start` on, which may be cut further as a tensor is.

    Nothing is read before `read`, which holds this block alone in memory.
    """

    name: str
    dtype: torch.dtype
    blocks: tuple[SavedBlock, ...]
    start: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def narrow(self, dim: int, start: int, length: int) -> Saved:
        """The same as `Tensor.narrow`."""
        first, shape = list(self.start), list(self.shape)
        first[dim], shape[dim] = first[dim] + start, length
        return replace(self, start=tuple(first), shape=tuple(shape))

    def __getitem__(self, places: tuple[slice, ...]) -> Saved:
        cut = self
        for dim, place in enumerate(places):
            start, stop, _ = place.indices(self.shape[dim])
            cut = cut.narrow(dim, start, max(stop - start, 0))
        return cut

    def read(self) -> Tensor:
        """Read the block from the files. Raises ValueError that names a file that holds something else."""
        out = torch.empty(self.shape, dtype=self.dtype)
        for block in self.blocks:
            edges = zip(self.start, self.shape, block.start, block.shape, strict=True)
            common = [(max(a, b), min(a + n, b + m)) for a, n, b, m in edges]
            if any(stop <= first for first, stop in common):
                continue
            within = tuple(slice(first - at, stop - at) for (first, stop), at in zip(common, block.start, strict=True))
            target = out[tuple(slice(f - at, s - at) for (f, s), at in zip(common, self.start, strict=True))]
            try:
                with safe_open(block.path, "pt") as file:
                    target.copy_(file.get_slice(self.name)[within] if within else file.get_tensor(self.name))
            except SafetensorError as error:
                raise ValueError(f"{block.path} is not a sound safetensors file: {error}") from None
        return out


Parts = Mapping[str, Tensor | Saved]


def loaded(tensor: Tensor | Saved) -> Tensor:
    """A tensor as it is, or read from its files."""
    return tensor.read() if isinstance(tensor, Saved) else tensor


def saved_in(paths: Sequence[Path], where: str) -> dict[str, Saved]:
    """The whole tensors that several files hold together. Raises ValueError if numbers are missing, or a file is unsound."""
    found: dict[str, tuple[torch.dtype, tuple[int, ...], dict[tuple[int, ...], SavedBlock]]] = {}
    for path in paths:
        for name, dtype, shape, piece in _entries(path):
            start, whole = piece or TensorPiece((0,) * len(shape), shape)
            blocks = found.setdefault(name, (dtype, whole, {}))[2]
            blocks[start] = SavedBlock(path, start, shape)  # copies of a block count once
    return {name: _whole(name, *entry, where) for name, entry in found.items()}


def _entries(path: Path) -> Iterable[tuple[str, torch.dtype, tuple[int, ...], TensorPiece | None]]:
    try:
        with safe_open(path, "pt") as file:
            pieces = pieces_in(file.metadata(), path)
            for name in file.keys():  # noqa: SIM118  it is no mapping
                one = file.get_slice(name)
                dtype = one[tuple(slice(0, 0) for _ in one.get_shape())].dtype if one.get_shape() else None
                yield (
                    name,
                    file.get_tensor(name).dtype if dtype is None else dtype,
                    tuple(one.get_shape()),
                    pieces.get(name),
                )
    except SafetensorError as error:
        raise ValueError(f"{path} is not a sound safetensors file: {error}") from None


def _whole(
    name: str, dtype: torch.dtype, shape: tuple[int, ...], blocks: dict[tuple[int, ...], SavedBlock], where: str
) -> Saved:
    numbers = sum(torch.Size(block.shape).numel() for block in blocks.values())
    if numbers != torch.Size(shape).numel():
        raise ValueError(
            f"{where} hold {numbers} of the {torch.Size(shape).numel()} numbers of {name}; a shard is missing"
        )
    return Saved(name, dtype, tuple(blocks.values()), (0,) * len(shape), shape)
