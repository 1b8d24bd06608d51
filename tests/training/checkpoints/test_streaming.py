"""A file that is written tensor by tensor is the one that the library writes, with checksums."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from qkv.training.checkpoints.streaming import Later, stream_tensors
from qkv.training.checkpoints.weights import read_tensors


def test_equal_to_the_whole(tmp_path: Path) -> None:
    tensors = {
        "a.weight": torch.randn(3, 5),
        "ß": torch.randn(4).bfloat16(),
        "empty": torch.zeros(0, 2),
        "steps": torch.tensor(7),
    }
    later = [Later(name, t.dtype, tuple(t.shape), lambda t=t: t) for name, t in tensors.items()]  # type: ignore[misc]
    stream_tensors(tmp_path / "streamed", later)
    save_file(tensors, tmp_path / "whole")
    streamed, whole = read_tensors(tmp_path / "streamed"), read_tensors(tmp_path / "whole")
    assert streamed.keys() == whole.keys() and all(torch.equal(streamed[name], whole[name]) for name in whole)
    data = bytearray((tmp_path / "streamed").read_bytes())
    data[-1] ^= 1
    (tmp_path / "streamed").write_bytes(data)
    with pytest.raises(ValueError, match="the checksum of 'ß' differs"):
        read_tensors(tmp_path / "streamed")


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail() -> torch.Tensor:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        stream_tensors(path, [Later("a", torch.float32, (2,), fail)])
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
