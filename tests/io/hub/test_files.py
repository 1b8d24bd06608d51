"""Weights in files: one file, shards, pickles; damage is named before anything is allocated."""

from __future__ import annotations

import json
import os
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from qkv.io.hub.files import DTYPES, INDEX, PICKLE, WEIGHTS, Safetensors, open_weights, read_stored
from qkv.training.checkpoints.weights import read_tensors, replace_tensors

TENSORS = {
    "a": torch.arange(6.0).reshape(2, 3),
    "b": torch.arange(5).to(torch.bfloat16),
    "c": torch.tensor(3.0, dtype=torch.float16),
    "empty": torch.empty(0, 4),
}


def shard(folder: Path) -> None:
    places = {}
    for i, name in enumerate(TENSORS):
        file = f"model-{i + 1:05}-of-{len(TENSORS):05}.safetensors"
        save_file({name: TENSORS[name]}, folder / file)
        places[name] = file
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))


@pytest.mark.parametrize("way", ["one", "shards", "pickle"])
def test_what_is_read_is_what_was_written(way: str, tmp_path: Path) -> None:
    if way == "one":
        save_file(TENSORS, tmp_path / WEIGHTS, metadata={"format": "pt"})
    elif way == "shards":
        shard(tmp_path)
    else:
        torch.save(TENSORS, tmp_path / PICKLE)
    weights = open_weights(tmp_path, allow_pickle=way == "pickle")
    assert set(weights.shapes) == set(TENSORS)
    for name, tensor in TENSORS.items():
        read = weights.read(name)
        assert torch.equal(read, tensor) and read.dtype == tensor.dtype == weights.dtype(name)


def test_files_are_mapped_and_copied_on_write(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / WEIGHTS)
    before = (tmp_path / WEIGHTS).read_bytes()
    weights = Safetensors([tmp_path / WEIGHTS])
    read, other = weights.read("a"), Safetensors([tmp_path / WEIGHTS]).read("a")
    read.add_(1)
    assert torch.equal(read, TENSORS["a"] + 1) and torch.equal(other, TENSORS["a"])
    assert (tmp_path / WEIGHTS).read_bytes() == before


def test_what_is_forgotten_is_read_again(tmp_path: Path) -> None:
    tensors = {name: torch.randn(5000) for name in "abc"}
    save_file(tensors, tmp_path / WEIGHTS)
    weights = Safetensors([tmp_path / WEIGHTS])
    before, after = weights.read("a"), weights.read("c").add_(1)
    weights.read("b")
    weights.forget("b")
    assert torch.equal(weights.read("b"), tensors["b"])
    assert torch.equal(before, tensors["a"]) and torch.equal(after, tensors["c"] + 1)  # its neighbors keep their pages


def test_what_was_read_outlives_a_file_that_is_replaced(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / WEIGHTS)
    read = Safetensors([tmp_path / WEIGHTS]).read("a")
    save_file({"a": torch.zeros(2, 3)}, tmp_path / "beside")
    (tmp_path / "beside").replace(tmp_path / WEIGHTS)
    assert torch.equal(read, TENSORS["a"])


def test_a_file_cut_short_after_its_header_was_read_is_told(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(4000)}, tmp_path / WEIGHTS)
    weights = Safetensors([tmp_path / WEIGHTS])
    os.truncate(tmp_path / WEIGHTS, 4096)
    with pytest.raises(ValueError, match="was cut short while it was read"):
        weights.read("a")


def test_numbers_that_begin_anywhere(tmp_path: Path) -> None:
    entries = {"a": entry(0, 1, [1], "U8"), "b": entry(1, 9)}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    data = b"\x07" + torch.tensor([1.5, -2.0]).numpy().tobytes()
    (tmp_path / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text + data)
    weights = Safetensors([tmp_path / WEIGHTS])
    assert weights.read("a").tolist() == [7] and weights.read("b").tolist() == [1.5, -2.0]


def header(entries: object, data: bytes = b"") -> bytes:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(begin: int, end: int, shape: list[int] | None = None, dtype: str = "F32") -> dict:
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


DAMAGE: dict[str, tuple[bytes, str]] = {
    "overlap": (header({"a": entry(0, 8), "b": entry(4, 12)}, b"0" * 12), "overlap or leave gaps"),
    "the same bytes twice": (header({"a": entry(0, 8), "b": entry(0, 8)}, b"0" * 8), "overlap or leave gaps"),
    "gap": (header({"a": entry(0, 4), "b": entry(8, 12)}, b"0" * 12), "overlap or leave gaps"),
    "does not begin at 0": (header({"a": entry(4, 8)}, b"0" * 8), "overlap or leave gaps"),
    "trailing bytes": (header({"a": entry(0, 4)}, b"0" * 5), "damaged or cut short"),
    "data cut": (header({"a": entry(0, 8)}, b"0" * 4), "damaged or cut short"),
    "a name twice": (header(b'{"a": {}, "a": {}}'), "occurs twice"),
    "oversized header": ((2**62).to_bytes(8, "little") + b"{}", "can't hold its header"),
    "negative offset": (header({"a": entry(-4, 0)}), "out of range"),
    "offsets in words": (header({"a": {**entry(0, 4), "data_offsets": ["0", "4"]}}, b"0" * 4), "header is damaged"),
    "a dimension that is no integer": (header({"a": {**entry(0, 4), "shape": [1.0]}}, b"0" * 4), "out of range"),
    "huge shape": (header({"a": entry(0, 4, [2**60, 2**60])}, b"0" * 4), "size is not that of its shape"),
    "unknown dtype": (header({"a": entry(0, 4, [8], "F4")}, b"0" * 4), "of the dtype F4, which is not read here"),
    "a dtype that is no name": (header({"a": entry(0, 4, [1], "F 32")}, b"0" * 4), "header is damaged"),
    "a dtype that is no string": (header({"a": {**entry(0, 4), "dtype": ["F32"]}}, b"0" * 4), "header is damaged"),
    "checksums of another kind": (
        header({"__metadata__": {"qkv.crc32": "[1]"}, "a": entry(0, 4)}, b"0" * 4),
        "checksums",
    ),
    "a header beyond the bound": (header(b'{"a": "' + b"x" * (9 << 20) + b'"}'), "bound is 8 MiB"),
    "no JSON": (header(b"{]"), "header is damaged"),
    "nested deep": (header(b"[" * 100_000), "header is damaged"),
    "a pickle": (pickle.dumps({"a": 1}), "is a pickle"),
    "nothing": (b"", "cut short"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_named(name: str, tmp_path: Path) -> None:
    content, said = DAMAGE[name]
    path = tmp_path / WEIGHTS
    path.write_bytes(content)
    with pytest.raises(ValueError) as error:
        read_stored(path)
    assert said in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)


def index(change: Callable[[dict], object]) -> Callable[[Path], None]:
    def broken(folder: Path) -> None:
        data = json.loads((folder / INDEX).read_text())
        change(data)
        (folder / INDEX).write_text(json.dumps(data))

    return broken


SHARDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing shard": (lambda f: next(f.glob("*00002*")).unlink(), "lacks model-00002-of-00004.safetensors, of the 4"),
    "a shard outside": (index(lambda d: d["weight_map"].update(a="../x.safetensors")), "lies beside its index"),
    "an absolute shard": (index(lambda d: d["weight_map"].update(a="/etc/passwd")), "lies beside its index"),
    "another's tensor": (index(lambda d: d["weight_map"].update(a=d["weight_map"]["b"])), "'a' is in model-00002"),
    "one not listed": (index(lambda d: d["weight_map"].update({"z": d["weight_map"]["a"]})), "says that 'z' is in"),
    "no map": (index(lambda d: d.pop("weight_map")), "no weight_map"),
    "a tensor twice": (
        lambda f: save_file({"a": torch.ones(1), "b": TENSORS["b"]}, next(f.glob("*00002*"))),
        "'a' is in",
    ),
    "no JSON": (lambda f: (f / INDEX).write_text("{"), "not valid JSON"),
}


@pytest.mark.parametrize("name", SHARDS)
def test_shards_that_do_not_fit_their_index_are_named(name: str, tmp_path: Path) -> None:
    change, said = SHARDS[name]
    shard(tmp_path)
    change(tmp_path)
    with pytest.raises(ValueError) as error:
        open_weights(tmp_path)
    assert said in str(error.value) and str(tmp_path) in str(error.value)


class Opens:
    """What a pickle that runs code looks like."""

    def __reduce__(self) -> tuple:
        return (os.mkdir, ("/tmp/qkv-a-pickle-ran",))


def test_pickles_are_asked_for_and_run_nothing(tmp_path: Path) -> None:
    torch.save(TENSORS, tmp_path / PICKLE)
    with pytest.raises(ValueError, match=r"pickles only \(pytorch_model.bin\).*--allow-pickle"):
        open_weights(tmp_path)
    (tmp_path / PICKLE).write_bytes(pickle.dumps(Opens()))
    with pytest.raises(ValueError, match="holds more than tensors, or is damaged"):
        open_weights(tmp_path, allow_pickle=True)
    assert not Path("/tmp/qkv-a-pickle-ran").exists()
    torch.save({"a": {"b": 1}}, tmp_path / PICKLE)
    with pytest.raises(ValueError, match="not a dictionary of tensors"):
        open_weights(tmp_path, allow_pickle=True)


def test_a_directory_without_weights_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no weights: it has no model.safetensors, nor model.safetensors.index"):
        open_weights(tmp_path)


@pytest.mark.parametrize("dtype", sorted(set(DTYPES) - {"F8_E8M0"}))  # which the library itself does not write
def test_every_dtype_is_read_as_the_library_reads_it(dtype: str, tmp_path: Path) -> None:
    numbers = torch.tensor([0, 1, 0, 1, 1])
    save_file({"a": numbers.to(DTYPES[dtype]), "b": torch.ones(2)}, tmp_path / WEIGHTS)
    read = Safetensors([tmp_path / WEIGHTS])
    assert read.dtype("a") == DTYPES[dtype] == load_file(tmp_path / WEIGHTS)["a"].dtype
    assert torch.equal(read.read("a").to(torch.complex64).real, numbers.float())


def test_a_large_header_is_refused_in_little_memory(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS).write_bytes(header(b"[" + b"[]," * (20 << 20) + b"[]]"))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="has a header of 60 MiB, and the bound is 8 MiB"):
            read_stored(tmp_path / WEIGHTS)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_checksum_finds_what_changed(tmp_path: Path) -> None:
    replace_tensors(tmp_path / WEIGHTS, TENSORS)
    sound = (tmp_path / WEIGHTS).read_bytes()
    whole = Safetensors([tmp_path / WEIGHTS])
    assert all(torch.equal(whole.read(name), tensor) for name, tensor in TENSORS.items())
    for stored in whole.stored.values():
        if stored.size:
            changed = bytearray(sound)
            changed[stored.end - 1] ^= 1
            (tmp_path / "changed").write_bytes(changed)
            damaged = Safetensors([tmp_path / "changed"])
            name = next(name for name, one in whole.stored.items() if one == stored)
            with pytest.raises(ValueError, match=f"changed is damaged: the checksum of '{name}'"):
                damaged.read(name)
            with pytest.raises(ValueError, match=f"changed is damaged: the checksum of '{name}'"):
                read_tensors(tmp_path / "changed")
    save_file(load_file(tmp_path / WEIGHTS), tmp_path / WEIGHTS)  # another program: no checksums, no complaints
    assert Safetensors([tmp_path / WEIGHTS]).checksums == {tmp_path / WEIGHTS: {}}
