"""Tensors of checkpoints that are read in slices."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from allocations import Allocations
from hypothesis import given
from hypothesis import strategies as st

from qkv.core import atomic
from qkv.core.ranks import ALONE
from qkv.training.checkpoints import checkpoint
from qkv.training.checkpoints.checkpoint import MODEL, Checkpoints, load_tensors, saved_tensors
from qkv.training.checkpoints.pieces import CheckpointShard, TensorPiece, shard_name, to_metadata
from qkv.training.checkpoints.slices import saved_in
from qkv.training.checkpoints.weights import write_tensors


def shards(folder: Path, whole: torch.Tensor, cuts: list[int]) -> list[Path]:
    """Files of the rows between cuts."""
    edges = [0, *cuts, len(whole)]
    paths = []
    for i, (start, stop) in enumerate(itertools.pairwise(edges)):
        paths.append(folder / shard_name(MODEL, i, len(edges) - 1))
        piece = TensorPiece((start, 0), tuple(whole.shape))
        write_tensors(paths[-1], {"w": whole[start:stop], "n": torch.tensor(7)}, to_metadata({"w": piece}))
    return paths


@given(cuts=st.lists(st.integers(1, 8), max_size=3, unique=True), data=st.data())
def test_any_block_of_any_shards_is_read_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], data
) -> None:
    whole = torch.randn(9, 5, dtype=torch.float64)
    saved = saved_in(shards(tmp_path_factory.mktemp("s"), whole, sorted(cuts)), "the shards")
    start, length = data.draw(st.integers(0, 8)), data.draw(st.integers(0, 9))
    length = min(length, 9 - start)
    block = saved["w"].narrow(0, start, length)[:, 1:4] if length else saved["w"].narrow(0, start, 0)
    wanted = whole[start : start + length]
    assert torch.equal(block.read(), wanted[:, 1:4] if length else wanted) and block.shape == tuple(block.read().shape)
    assert saved["n"].read() == 7 and saved["n"].dtype == torch.int64 and saved["w"].dtype == torch.float64


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    paths = shards(tmp_path, torch.randn(9, 5), [4])
    with pytest.raises(ValueError, match="hold 20 of the 45 numbers of w; a shard is missing"):
        saved_in(paths[:1], "the shards of x")


def test_a_block_is_read_without_the_rest(tmp_path: Path) -> None:
    (path,) = shards(tmp_path, torch.randn(4096, 64), [])
    with Allocations() as made:
        saved_in([path], "x")["w"].narrow(0, 100, 10).read()
    assert made.total <= 10 * 64 * 4 + 64


def test_no_file_of_a_checkpoint_is_hashed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Checkpoints(tmp_path)
    path = store.save(
        1, {MODEL: CheckpointShard({"w": torch.randn(4)}, {}), "optimizer.safetensors": CheckpointShard({}, {})}, {}
    )
    hashed: list[Path] = []
    sha256 = atomic.sha256
    monkeypatch.setattr(atomic, "sha256", lambda path: (hashed.append(path), sha256(path))[1])
    checkpoint.check(path, ALONE)
    saved_tensors(path, MODEL)["w"].read()
    assert sorted(hashed) == sorted(set(hashed)) and len(hashed) == 2
    assert torch.equal(load_tensors(path, MODEL)["w"], saved_tensors(path, MODEL)["w"].read())


@pytest.mark.xdist_group("ranks")
def test_ranks_hash_different_files_and_all_hear_of_a_changed_one(two, tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    path = store.save(
        1, {MODEL: CheckpointShard({"w": torch.randn(4)}, {}), "optimizer.safetensors": CheckpointShard({}, {})}, {}
    )
    assert sorted(itertools.chain(*two.run(hashed_by, str(path)))) == ["model.safetensors", "optimizer.safetensors"]
    with (path / MODEL).open("rb+") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
    for said in two.run(hashed_by, str(path)):
        assert said == [f"{path / MODEL} was changed after it was saved (its SHA-256 differs)"]


def hashed_by(ranks, path: str) -> list[str]:
    """The files that this rank hashes, or the error."""
    hashed: list[str] = []
    sha256 = atomic.sha256
    atomic.sha256 = lambda path: (hashed.append(path.name), sha256(path))[1]
    try:
        checkpoint.check(Path(path), ranks)
    except ValueError as error:
        return [str(error)]
    finally:
        atomic.sha256 = sha256
    return hashed
