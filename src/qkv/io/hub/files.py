"""Directories of models: which files hold the weights, what stands in them, and tensors read straight into place.

Only headers are read until everything is known to fit. Then safetensors files are mapped: pages come from the disk when
they are first looked at, are shared with other processes that read the file, and are copied when they are written to:
training changes no file. A file that is replaced (as saving does) stays what it was for those who have it mapped; one
that is written over or cut short does not.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from ...core import checksums
from ...core.checksums import DTYPES
from ...core.json_files import read_json
from ...core.spec import brief
from .mapped_files import MappedFiles
from .transforms import Shape

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLE, PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
HEADER = 8 << 20  # bytes, room for some 70,000 tensors in one file; reading JSON takes thirty times its size
_LONGEST_NAME = 255  # bytes of a file's name
_PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")  # a zip, as torch.save writes, or bare


class WeightFiles(Protocol):
    """Tensors that lie in files; several threads may read at once."""

    @property
    def shapes(self) -> Mapping[str, Shape]: ...
    def dtype(self, name: str) -> torch.dtype: ...
    def read(self, name: str) -> Tensor:
        """A tensor on the host; it may be a part of a mapped file, copied on write."""
        ...

    def forget(self, name: str) -> None:
        """Release the file's memory pages of a tensor that was copied elsewhere."""
        ...


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a safetensors file: bytes `begin` … `end` − 1 of the file."""

    path: Path
    dtype: torch.dtype
    shape: Shape
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


class Safetensors:
    """The tensors of one safetensors file, or of several shards. Their headers are read and checked, nothing else."""

    def __init__(self, paths: list[Path]) -> None:
        self.stored: dict[str, StoredTensor] = {}
        self.checksums: dict[Path, dict[str, int]] = {}
        for path in paths:
            tensors, self.checksums[path] = read_stored(path)
            for name, stored in tensors.items():
                if name in self.stored:
                    raise ValueError(
                        f"{brief(name)} is in {self.stored[name].path.name} and in {path.name}, of {path.parent}"
                    )
                self.stored[name] = stored
        self.shapes: Mapping[str, Shape] = {name: stored.shape for name, stored in self.stored.items()}
        self._files = MappedFiles()

    def dtype(self, name: str) -> torch.dtype:
        return self.stored[name].dtype

    def is_checked(self, name: str) -> bool:
        """Whether `read` compares a tensor with its checksum, and therefore reads all of it."""
        return name in self.checksums[self.stored[name].path]

    def read(self, name: str) -> Tensor:
        """Raises ValueError naming the file if the tensor's checksum, if it has one, is another."""
        stored = self.stored[name]
        tensor = self._read(stored)
        checksums.check(name, tensor, self.checksums[stored.path], str(stored.path))
        return tensor

    def _read(self, stored: StoredTensor) -> Tensor:
        count = math.prod(stored.shape)
        if not count:
            return torch.empty(stored.shape, dtype=stored.dtype)
        data = self._files.map(stored.path, stored.end)
        if stored.begin % stored.dtype.itemsize:  # no number may begin there
            raw = torch.frombuffer(data, dtype=torch.uint8, count=stored.size, offset=stored.begin)
            return raw.clone().view(stored.dtype).view(stored.shape)
        values = torch.frombuffer(data, dtype=stored.dtype, count=count, offset=stored.begin)
        return values.view(stored.shape)

    def forget(self, name: str) -> None:
        stored = self.stored[name]
        self._files.forget(stored.path, stored.begin, stored.end)


class Pickled:
    """The tensors of files that `torch.save` wrote, unpickled as nothing but tensors (`weights_only`)."""

    def __init__(self, paths: list[Path]) -> None:
        self.tensors: dict[str, Tensor] = {}
        for path in paths:
            try:
                tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            except Exception as error:
                raise ValueError(f"{path} holds more than tensors, or is damaged: {_first_line(error)}") from None
            if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
                raise ValueError(f"{path} is not a dictionary of tensors, as a model's weights are")
            self.tensors |= tensors
        self.shapes: Mapping[str, Shape] = {name: tuple(t.shape) for name, t in self.tensors.items()}

    def dtype(self, name: str) -> torch.dtype:
        return self.tensors[name].dtype

    def read(self, name: str) -> Tensor:
        return self.tensors[name].clone(memory_format=torch.contiguous_format)

    def forget(self, name: str) -> None:
        """Do nothing: `read` copies."""


def open_weights(folder: Path, allow_pickle: bool = False) -> WeightFiles:
    """The weights of a directory: `model.safetensors`, its shards, or, if that is allowed, `pytorch_model.bin`.

    Raises ValueError naming what is missing or damaged.
    """
    if (folder / WEIGHTS).is_file():
        return Safetensors([folder / WEIGHTS])
    if (folder / INDEX).is_file():
        return _sharded(folder)
    pickles = [name for name in (PICKLE, PICKLE_INDEX) if (folder / name).is_file()]
    if not pickles:
        raise ValueError(f"{folder} holds no weights: it has no {WEIGHTS}, nor {INDEX}")
    if not allow_pickle:
        raise ValueError(
            f"{folder} holds its weights as pickles only ({pickles[0]}), which can run code when they are read; "
            "allow_pickle=True reads only tensors from them, and so does `qkv convert DIRECTORY COPY --allow-pickle`"
        )
    return Pickled([folder / PICKLE] if pickles[0] == PICKLE else list(_shards(folder, PICKLE_INDEX)))


def _sharded(folder: Path) -> Safetensors:
    shards = _shards(folder, INDEX)
    weights = Safetensors(list(shards))
    for path, names in shards.items():
        for name in names:
            if name not in weights.stored or weights.stored[name].path != path:
                raise ValueError(f"{folder / INDEX} says that {brief(name)} is in {path.name}, and it is not")
    listed = {name for names in shards.values() for name in names}
    for name, stored in weights.stored.items():
        if name not in listed:
            raise ValueError(f"{stored.path} holds {brief(name)}, which {INDEX} does not list")
    return weights


def _shards(folder: Path, index: str) -> dict[Path, list[str]]:
    """The shards of an index, each with the names that it is to hold."""
    data = read_json(folder / index)
    places = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(places, dict) or not places or not all(isinstance(name, str) for name in places.values()):
        raise ValueError(f"{folder / index} is no index of shards: it has no weight_map of names and files")
    shards: dict[Path, list[str]] = {}
    for name, file in places.items():
        if (
            Path(file).name != file
            or "\\" in file
            or "\0" in file
            or len(file.encode("utf-8", "replace")) > _LONGEST_NAME
        ):
            raise ValueError(f"{folder / index} names {brief(file)}, and a shard lies beside its index")
        shards.setdefault(folder / file, []).append(name)
    missing = [path.name for path in shards if not path.is_file()]
    if missing:
        raise ValueError(f"{folder} lacks {', '.join(missing[:3])}, of the {len(shards)} shards that {index} names")
    return shards


# -- safetensors -------------------------------------------------------------------------------------------------------


def read_stored(path: Path) -> tuple[dict[str, StoredTensor], dict[str, int]]:
    """The place of each tensor in a safetensors file, and its checksum if it has one.

    Raises ValueError naming the file if its header is damaged or too large, or the tensors' bytes overlap, leave
    gaps, or are not what the file has room for.
    """
    header, start = read_header(path)
    tensors = {
        name: StoredTensor(
            path, DTYPES[e["dtype"]], tuple(e["shape"]), start + e["data_offsets"][0], start + e["data_offsets"][1]
        )
        for name, e in header.items()
        if name != "__metadata__"
    }
    at = start
    for stored in sorted(tensors.values(), key=lambda stored: (stored.begin, stored.end)):
        if stored.begin != at:
            raise ValueError(f"{path} is not a sound safetensors file: its tensors overlap or leave gaps")
        at = stored.end
    size = path.stat().st_size
    if size != at:
        raise ValueError(f"{path} is damaged or cut short: it is {size:,} bytes long, its header speaks of {at:,}")
    return tensors, checksums.read(header.get("__metadata__"), str(path))


def read_header(path: Path) -> tuple[dict[str, Any], int]:
    """A safetensors file's header and where its data begin. Nothing is unpickled, whatever the file is called."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        length = int.from_bytes(head, "little")
        if len(head) < 8 or length > size - 8:
            if head.startswith(_PICKLES):
                raise ValueError(
                    f"{path} is a pickle, as torch.save writes, which is never read; save it as safetensors"
                )
            raise ValueError(f"{path} is not a safetensors file, or cut short: {size:,} bytes can't hold its header")
        if length > HEADER:
            raise ValueError(
                f"{path} has a header of {length >> 20} MiB, and the bound is {HEADER >> 20} MiB (some 70,000 tensors); "
                "save the model as several files (max_shard_size)"
            )
        text = file.read(length)
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
        entries = [entry for name, entry in header.items() if name != "__metadata__"]
        _check_dtypes(entries, path)
        for entry in entries:
            _check_entry(entry)
    except _Unread:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not a sound safetensors file: its header is damaged ({error})") from None
    return header, 8 + length


class _Unread(ValueError):
    """A valid file with a dtype that is not read."""


def _check_dtypes(entries: list[Mapping[str, Any]], path: Path) -> None:
    for entry in entries:
        if re.fullmatch(r"[A-Z]\w{1,15}", entry["dtype"]) and entry["dtype"] not in DTYPES:
            raise _Unread(
                f"{path} holds numbers of the dtype {entry['dtype']}, which is not read here; convert it to one of "
                f"{', '.join(DTYPES)}"
            )


def _check_entry(entry: Mapping[str, Any]) -> None:
    begin, end = entry["data_offsets"]
    numbers = [begin, end, *entry["shape"]]
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"the dtype {brief(entry['dtype'])} is not read here")
    if any(type(n) is not int or n < 0 for n in numbers) or begin > end:
        raise ValueError("an entry is out of range")
    if math.prod(entry["shape"]) * DTYPES[entry["dtype"]].itemsize != end - begin:
        raise ValueError("an entry's size is not that of its shape")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a name occurs twice")
    return entries


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].split(". ")[0]
