"""Pieces of tensors: where they are, how their files are named, and what the files say of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from qkv.training.checkpoints.pieces import (
    KEY,
    TensorPiece,
    pieces_in,
    rows_of,
    shard_name,
    shards_of,
    to_metadata,
)


@pytest.mark.parametrize("rows", [1, 4, 5, 8])
def test_equal_parts_of_the_rows_are_pytorchs_chunks(rows: int) -> None:
    whole = torch.arange(rows * 3).reshape(rows, 3)
    chunks = whole.chunk(4)
    for number in range(4):
        shape, piece = rows_of(whole.shape, 4, number)
        assert torch.equal(piece.of(whole, shape), chunks[number] if number < len(chunks) else whole[:0])


def test_a_block_of_a_block_is_a_block_of_the_whole() -> None:
    whole = torch.arange(48).reshape(6, 8)
    outer, inner = TensorPiece((2, 4), (6, 8)), TensorPiece((1, 1), (4, 4))
    assert torch.equal(inner.within(outer).of(whole, (2, 2)), inner.of(outer.of(whole, (4, 4)), (2, 2)))
    assert inner.within(outer).shape == (6, 8)


def test_the_shards_of_a_file_are_found_in_order_and_no_others() -> None:
    names = [shard_name("model.safetensors", number, 12) for number in range(12)]
    assert names[0] == "model-00001-of-00012.safetensors"
    others = ["model.safetensors", shard_name("optimizer.safetensors", 0, 2), "model-1-of-2.safetensors"]
    assert shards_of("model.safetensors", [*reversed(names), *others]) == names


def test_pieces_in_a_files_metadata_are_read_back_or_the_file_is_named() -> None:
    pieces = {"a.weight": TensorPiece((2, 0), (4, 3))}
    assert pieces_in(to_metadata(pieces), Path("x")) == pieces
    assert to_metadata({}) == {} and pieces_in(None, Path("x")) == {}
    for wrong in ("[1]", "{", '{"a": 1}', '{"a": [["x"], [1]]}'):
        with pytest.raises(ValueError, match=r"x\.safetensors has a malformed entry 'pieces'"):
            pieces_in({KEY: wrong}, Path("x.safetensors"))
