"""Read and write GGUF files: a header of metadata and tensor places, then the tensors' bytes (versions 2 and 3).

    "GGUF" version n_tensors n_metadata (key type value)… (name shape type offset)… padding tensors

Everything is little-endian. Shapes stand with the innermost axis first, and tensors begin at multiples of
`general.alignment`. A large model may be split: NAME-00001-of-00003.gguf holds the metadata, and each file its tensors.

The `gguf` library of llama.cpp is not used to read. It trusts the counts and lengths in the header, so a broken file
costs memory or gives a traceback. It also makes a Python list of arrays for each string of the vocabulary. Here every
count is compared with the bytes that are left before anything is allocated; errors are `ValueError`s that name the file
and the field. Only the header is read; the tensors stay in the file until `Tensors.bytes_of` maps them.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ....core.several import path as path_of
from ....core.spec import brief
from ..mapped_files import MappedFiles
from ..transforms import Shape
from .block_types import BY_ID, BlockType

MAGIC, VERSIONS, SUFFIX = b"GGUF", (2, 3), ".gguf"
ALIGNMENT = "general.alignment"
USUAL_ALIGNMENT, LARGEST_ALIGNMENT = 32, 1 << 16
LARGEST_HEADER = 256 << 20  # bytes; the vocabulary of Gemma takes 12 MB
MOST_TENSORS = 1 << 16
MOST_KEYS = 1 << 14
MOST_ELEMENTS = 1 << 22  # of all arrays together; the largest vocabularies have some 700,000 tokens and merges
LONGEST_KEY, LONGEST_NAME, LONGEST_STRING = 1 << 10, 64, 16 << 20  # bytes
MOST_SPLITS = 1 << 10
SPLIT = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_SPLIT_COUNT, _SPLIT_NUMBER = "split.count", "split.no"

STRING, ARRAY = 8, 9
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The types of metadata that are numbers, as `struct` spells them; 7 is a Boolean."""
_LAYOUTS = {code: struct.Struct(f"<{code}") for code in NUMBERS.values()}
_DTYPES = {code: np.dtype(code).newbyteorder("<") for code in NUMBERS.values()}


@dataclass(frozen=True)
class GGUFTensor:
    """A tensor in a GGUF file: bytes `begin` … `end` − 1; the shape in PyTorch's order, the innermost axis last."""

    path: Path
    name: str
    type: BlockType
    shape: Shape
    begin: int
    end: int


@dataclass(frozen=True)
class Tensors:
    """The header of a model in one GGUF file or several, and access to the bytes of its tensors."""

    path: Path
    metadata: Mapping[str, Any]
    stored: Mapping[str, GGUFTensor]
    files: MappedFiles = field(default_factory=MappedFiles, repr=False, compare=False)

    def bytes_of(self, name: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The bytes of a tensor: a part of the mapped file, copied when they are written to."""
        stored = self.stored[name]
        if stored.begin == stored.end:
            return np.empty(0, np.uint8)
        mapped = self.files.map(stored.path, stored.end)
        return np.frombuffer(mapped, np.uint8, stored.end - stored.begin, stored.begin)

    def forget(self, name: str) -> None:
        """Release the memory pages of a tensor that was copied elsewhere."""
        stored = self.stored[name]
        self.files.forget(stored.path, stored.begin, stored.end)


def is_gguf(path: Path | str) -> bool:
    """Whether a path is a file that begins as GGUF does, or is named so. Raises ValueError for what is no path."""
    path = path_of(path)
    if not path.is_file():
        return False
    if path.suffix == SUFFIX:
        return True
    with path.open("rb") as file:
        return file.read(4) == MAGIC


def read(path: Path | str) -> Tensors:
    """The header of a GGUF file, or of all files of a split model, given any of them.

    Raises ValueError naming the file and the field if one is damaged, cut short or not GGUF.
    """
    paths = split_files(path_of(path, "a GGUF file"))
    metadata: dict[str, Any] = {}
    stored: dict[str, GGUFTensor] = {}
    for number, part in enumerate(paths):
        own, tensors = read_file(part)
        if number == 0:
            metadata = own
        if len(paths) > 1 or own.get(_SPLIT_COUNT, 1) != 1:
            _check_split(part, own, number, len(paths))
        for tensor in tensors:
            if tensor.name in stored:
                raise ValueError(f"{part}: the tensor {brief(tensor.name)} is also in {stored[tensor.name].path.name}")
            stored[tensor.name] = tensor
    return Tensors(paths[0], metadata, stored)


def split_files(path: Path | str) -> list[Path]:
    """The files of a model, in order; a file that isn't named as a part is the only one."""
    path = path_of(path, "a GGUF file")
    match = SPLIT.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    if not 1 <= int(match["number"]) <= count <= MOST_SPLITS:
        raise ValueError(f"{path}: its name says part {match['number']} of {match['count']}, which can't be")
    paths = [path.with_name(f"{match['stem']}-{i:05}-of-{count:05}{SUFFIX}") for i in range(1, count + 1)]
    missing = [part.name for part in paths if not part.is_file()]
    if missing:
        raise ValueError(f"{path.parent} lacks {', '.join(missing[:3])}, of the {count} files of this model")
    return paths


def _check_split(path: Path, metadata: Mapping[str, Any], number: int, count: int) -> None:
    says = metadata.get(_SPLIT_COUNT, 1), metadata.get(_SPLIT_NUMBER, 0)
    if says != (count, number):
        raise ValueError(
            f"{path}: {_SPLIT_COUNT} and {_SPLIT_NUMBER} are {brief(says[0])} and {brief(says[1])}, and its name says "
            f"part {number + 1} of {count}; keep the names that the files were published under, "
            "NAME-00001-of-0000N.gguf"
        )


def read_file(path: Path | str) -> tuple[dict[str, Any], list[GGUFTensor]]:
    """The metadata and the tensors of one file. Raises ValueError naming the file and the field that is wrong."""
    path = path_of(path, "a GGUF file")
    size = path.stat().st_size
    with path.open("rb") as file:
        if size < 24 or file.read(4) != MAGIC:
            raise ValueError(f"{path} is not a GGUF file: it doesn't begin with {MAGIC.decode()}, or is cut short")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with mapped:
        return _Header(path, mapped, size).read()


class _Header:
    """A cursor over the header of a file; every read is checked against what is left."""

    def __init__(self, path: Path, data: mmap.mmap, size: int) -> None:
        self.path, self.data, self.size, self.at = path, data, size, 4
        self.end = min(size, LARGEST_HEADER)
        self.elements = MOST_ELEMENTS

    def wrong(self, what: str) -> ValueError:
        return ValueError(f"{self.path} is not a sound GGUF file: {what}")

    def read(self) -> tuple[dict[str, Any], list[GGUFTensor]]:
        version = self.number("I", "the version")
        if version not in VERSIONS:
            swapped = int.from_bytes(int(version).to_bytes(4, "little"), "big")
            if swapped in VERSIONS:
                raise ValueError(f"{self.path} is a big-endian GGUF file, and only little-endian ones are read")
            raise ValueError(f"{self.path} is of GGUF's version {version}, and versions 2 and 3 are read")
        n_tensors, n_keys = self.count("the number of tensors", 24), self.count("the number of keys", 13)
        if n_tensors > MOST_TENSORS:
            raise self.wrong(f"it says {n_tensors:,} tensors, and the bound is {MOST_TENSORS:,}")
        if n_keys > MOST_KEYS:
            raise self.wrong(f"it says {n_keys:,} metadata keys, and the bound is {MOST_KEYS:,}")
        metadata = self.metadata(n_keys)
        places = [self.place() for _ in range(n_tensors)]
        return metadata, self.tensors(places, self.alignment(metadata))

    # -- values -------------------------------------------------------------------------------------------------

    def take(self, count: int, what: str) -> int:
        """The position of the next `count` bytes, which are stepped over."""
        if count > self.end - self.at:
            limit = f"the bound of {LARGEST_HEADER >> 20} MiB for a header" if self.end < self.size else "the file"
            raise self.wrong(f"{what} needs {count:,} bytes at {self.at:,}, which is beyond {limit}")
        at, self.at = self.at, self.at + count
        return at

    def number(self, code: str, what: str) -> Any:
        layout = _LAYOUTS[code]
        return layout.unpack_from(self.data, self.take(layout.size, what))[0]

    def count(self, what: str, least: int) -> int:
        """A count of things that take at least `least` bytes each."""
        count: int = self.number("Q", what)
        if count * least > self.end - self.at:
            raise self.wrong(f"{what} is {count:,}, for which there is no room in its {self.size:,} bytes")
        return count

    def text(self, what: str, longest: int) -> str:
        length = self.count(f"the length of {what}", 1)
        if length > longest:
            raise self.wrong(f"{what} is {length:,} bytes long, and the bound is {longest:,}")
        at = self.take(length, what)
        try:
            return str(self.data[at : at + length], "utf-8")
        except UnicodeDecodeError:
            raise self.wrong(f"{what} is not UTF-8") from None

    def metadata(self, count: int) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        for i in range(count):
            key = self.text(f"metadata key {i}", LONGEST_KEY)
            if key in metadata:
                raise self.wrong(f"the metadata key {brief(key)} occurs twice")
            metadata[key] = self.value(brief(key))
        return metadata

    def value(self, key: str) -> Any:
        kind = self.number("I", f"the type of {key}")
        if kind in NUMBERS:
            return self.number(NUMBERS[kind], key)
        if kind == STRING:
            return self.text(key, LONGEST_STRING)
        if kind == ARRAY:
            return self.array(key)
        raise self.wrong(f"{key} has the type {kind}, which GGUF doesn't know")

    def array(self, key: str) -> Any:
        """A NumPy array, or a list of strings."""
        kind = self.number("I", f"the type of {key}")
        if kind not in NUMBERS and kind != STRING:
            what = "arrays" if kind == ARRAY else f"the type {kind}"
            raise self.wrong(f"{key} is an array of {what}, and only arrays of numbers and of strings are read")
        width = 8 if kind == STRING else _LAYOUTS[NUMBERS[kind]].size
        count = self.count(f"the length of {key}", width)
        self.elements -= count if width > 1 else count // 8
        if self.elements < 0:
            raise self.wrong(f"its arrays have more than {MOST_ELEMENTS:,} elements, of which {key} has {count:,}")
        if kind == STRING:
            return self.texts(key, count)
        at = self.take(count * width, key)
        return np.frombuffer(self.data[at : at + count * width], _DTYPES[NUMBERS[kind]])

    def texts(self, key: str, count: int) -> list[str]:
        """Strings one after the other, as `text` reads each, in one loop."""
        texts, at, unpack = [], self.at, _LAYOUTS["Q"].unpack_from
        for i in range(count):
            length = unpack(self.data, at)[0] if at + 8 <= self.end else self.end
            if length > min(LONGEST_STRING, self.end - at - 8):
                self.at = at
                self.text(f"{key}[{i}]", LONGEST_STRING)  # which says what is wrong
            try:
                texts.append(str(self.data[at + 8 : at + 8 + length], "utf-8"))
            except UnicodeDecodeError:
                raise self.wrong(f"{key}[{i}] is not UTF-8") from None
            at += 8 + length
        self.at = at
        return texts

    # -- tensors ------------------------------------------------------------------------------------------------

    def place(self) -> tuple[str, Shape, BlockType, int]:
        """Name, shape, type and offset of the next tensor."""
        name = self.text("a tensor's name", LONGEST_NAME)
        n_axes = self.number("I", f"the number of axes of {brief(name)}")
        if not 1 <= n_axes <= 4:
            raise self.wrong(f"the tensor {brief(name)} has {n_axes} axes; there are 1 to 4")
        shape = tuple(self.number("Q", f"the shape of {brief(name)}") for _ in range(n_axes))
        kind = self.number("I", f"the type of {brief(name)}")
        if kind not in BY_ID:
            raise self.wrong(f"the tensor {brief(name)} has the type {kind}, which is not known here")
        if shape[0] % BY_ID[kind].width:
            raise self.wrong(
                f"the tensor {brief(name)} has rows of {shape[0]:,}, and {BY_ID[kind].name} has blocks of "
                f"{BY_ID[kind].width}"
            )
        return name, shape[::-1], BY_ID[kind], self.number("Q", f"the offset of {brief(name)}")

    def alignment(self, metadata: Mapping[str, Any]) -> int:
        alignment = metadata.get(ALIGNMENT, USUAL_ALIGNMENT)
        fine = type(alignment) is int and 8 <= alignment <= LARGEST_ALIGNMENT and alignment.bit_count() == 1
        if not fine:
            raise self.wrong(f"{ALIGNMENT} is {brief(alignment)}; it is a power of two from 8 to {LARGEST_ALIGNMENT:,}")
        return int(alignment)

    def tensors(self, places: list[tuple[str, Shape, BlockType, int]], alignment: int) -> list[GGUFTensor]:
        """The tensors, known to lie in the file, one after the other, at aligned places."""
        start = -(-self.at // alignment) * alignment
        stored, names = [], set()
        for name, shape, kind, offset in places:
            count = 1
            for axis in shape:
                count *= axis
            end = start + offset + count // kind.width * kind.size
            if name in names:
                raise self.wrong(f"the tensor {brief(name)} occurs twice")
            if offset % alignment:
                raise self.wrong(f"the tensor {brief(name)} begins at {offset:,}, not at a multiple of {alignment}")
            if end > self.size:
                raise self.wrong(
                    f"the tensor {brief(name)} ends at {end:,}, and the file at {self.size:,}; it is cut short or damaged"
                )
            names.add(name)
            stored.append(GGUFTensor(self.path, name, kind, shape, start + offset, end))
        at = start
        for tensor in sorted(stored, key=lambda tensor: (tensor.begin, tensor.end)):
            if tensor.begin < at:
                raise self.wrong(f"the tensor {brief(tensor.name)} overlaps another")
            at = tensor.end
        return stored
