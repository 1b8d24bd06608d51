"""The container: files that llama.cpp's package reads, files that it writes, split files, and damaged ones."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf_contents import METADATA, made

from qkv.io.hub.gguf import container
from qkv.io.hub.gguf.blocks import dequantize


def test_what_their_package_writes_is_read(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the container is held to llama.cpp's package gguf")
    writer = gguf.GGUFWriter(tmp_path / "t.gguf", "llama")
    writer.add_block_count(7)
    writer.add_token_list(["x", "▁y"])
    writer.add_float64("double", 0.25)
    writer.add_int64("negative", -5)
    writer.add_custom_alignment(64)
    x = np.random.default_rng(0).standard_normal((5, 32)).astype(np.float16)
    writer.add_tensor("x", x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = container.read(tmp_path / "t.gguf")
    assert read.metadata["llama.block_count"] == 7 and read.metadata["tokenizer.ggml.tokens"] == ["x", "▁y"]
    assert (read.metadata["double"], read.metadata["negative"]) == (0.25, -5)
    stored = read.stored["x"]
    assert (stored.shape, stored.type.name) == ((5, 32), "f16")
    assert np.array_equal(dequantize(torch.from_numpy(read.bytes_of("x")), stored.type, stored.shape).numpy(), x)


def test_parts_of_a_split_model(tmp_path: Path) -> None:
    said = {**METADATA, "split.count": 2, "split.no": 0}
    first = made(tmp_path / "m-00001-of-00002.gguf", said, ("a.weight",))
    second = made(tmp_path / "m-00002-of-00002.gguf", {"split.count": 2, "split.no": 1}, ("b",))
    for path in (first, second):
        read = container.read(path)
        assert set(read.stored) == {"a.weight", "b"} and read.metadata["llama.block_count"] == 3
    assert read.stored["b"].path == second and read.bytes_of("b").view(np.float32).tolist() == [1.5, 2.5, 3.5]
    second.unlink()
    with pytest.raises(ValueError, match=r"lacks m-00002-of-00002.gguf, of the 2 files"):
        container.read(first)
    first.rename(tmp_path / "alone.gguf")
    with pytest.raises(ValueError, match=r"split.count and split.no are 2 and 0, and its name says part 1 of 1"):
        container.read(tmp_path / "alone.gguf")


# -- damaged files ------------------------------------------------------------------------------------------------------


def number(at: int, value: int, code: str = "Q") -> Callable[[bytearray], None]:
    return lambda data: struct.pack_into(f"<{code}", data, at, value)


def field(key: str, after: int, value: int, code: str = "Q") -> Callable[[bytearray], None]:
    """A number some bytes after the end of a key's name."""

    def change(data: bytearray) -> None:
        name = key.encode()
        struct.pack_into(f"<{code}", data, data.index(name) + len(name) + after, value)

    return change


def cut(data: bytearray) -> None:
    del data[-40:]


def word(before: bytes, after: bytes) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        at = data.index(before)
        data[at : at + len(before)] = after

    return change


def overlap(data: bytearray) -> None:
    """The tensor b begins within the 136 bytes of the other."""
    struct.pack_into("<Q", data, data.index(b"\x01" + bytes(7) + b"b") + 9 + 16, 32)


HUGE = 1 << 60
DAMAGE: dict[str, tuple[Callable[[bytearray], None], str]] = {
    "magic": (number(0, 7, "I"), "is not a GGUF file: it doesn't begin with GGUF"),
    "version": (number(4, 9, "I"), "version 9, and versions 2 and 3 are read"),
    "big-endian": (number(4, 3 << 24, "I"), "is a big-endian GGUF file"),
    "tensors": (number(8, HUGE), "the number of tensors is 1,152,921,504,606,846,976, for which there is no room"),
    "keys": (number(16, HUGE), "the number of keys is 1,152,921,504,606,846,976, for which there is no room"),
    "key": (number(24, HUGE), "the length of metadata key 0 is 1,152,921,504,606,846,976"),
    "string": (field("general.architecture", 4, HUGE), "the length of 'general.architecture' is"),
    "array": (field("tokenizer.ggml.tokens", 8, HUGE), "the length of 'tokenizer.ggml.tokens' is"),
    "element": (field("tokenizer.ggml.tokens", 16, HUGE), r"the length of 'tokenizer.ggml.tokens'\[0\] is"),
    "nested": (field("tokenizer.ggml.tokens", 4, 9, "I"), "is an array of arrays, and only arrays of numbers"),
    "type": (field("llama.block_count", 0, 77, "I"), "'llama.block_count' has the type 77"),
    "twice": (word(b"tokenizer.ggml.scores", b"tokenizer.ggml.tokens"), "'tokenizer.ggml.tokens' occurs twice"),
    "utf-8": (word("ß".encode(), b"\xff\xff"), r"'tokenizer.ggml.tokens'\[1\] is not UTF-8"),
    "axes": (field("a.weight", 0, 5, "I"), "the tensor 'a.weight' has 5 axes; there are 1 to 4"),
    "shape": (field("a.weight", 12, HUGE), "the tensor 'a.weight' ends at"),
    "row": (field("a.weight", 4, 48), "has rows of 48, and q8_0 has blocks of 32"),
    "numbers": (field("a.weight", 20, 250, "I"), "the tensor 'a.weight' has the type 250, which is not known here"),
    "offset": (field("a.weight", 24, 17), "'a.weight' begins at 17, not at a multiple of 32"),
    "beyond": (field("a.weight", 24, 1 << 40), "the tensor 'a.weight' ends at 1,099,511,62"),
    "overlap": (overlap, "the tensor 'b' overlaps another"),
    "cut": (cut, "is cut short or damaged"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_refused_by_name_and_field(damage: str, tmp_path: Path) -> None:
    change, said = DAMAGE[damage]
    path = made(tmp_path / "m.gguf")
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    with pytest.raises(ValueError, match=said) as caught:
        container.read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("alignment", [0, 7, 48, 1 << 20, "32"])
def test_alignments_that_cannot_be(alignment: Any, tmp_path: Path) -> None:
    path = made(tmp_path / "m.gguf", {"general.alignment": alignment})
    with pytest.raises(ValueError, match=r"general.alignment is .*; it is a power of two from 8 to 65,536"):
        container.read(path)


def test_a_file_cut_at_any_place_is_refused(tmp_path: Path) -> None:
    data = made(tmp_path / "m.gguf").read_bytes()
    last = container.read(tmp_path / "m.gguf").stored["b"].end
    for length in range(0, last, 3):
        (tmp_path / "cut.gguf").write_bytes(data[:length])
        with pytest.raises(ValueError, match=r"cut\.gguf"):
            container.read(tmp_path / "cut.gguf")
