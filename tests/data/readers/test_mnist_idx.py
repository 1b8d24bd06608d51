"""IDX files: images with their labels, and errors for broken files."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from qkv.data.readers.mnist_idx import Idx

DATA = Path(__file__).parents[4] / "shared" / "data"


def idx(path: Path, array: np.ndarray) -> None:
    with gzip.open(path, "wb") as file:
        file.write(bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes())


def test_idx_files(tmp_path: Path) -> None:
    images, labels = np.arange(5 * 6, dtype=np.uint8).reshape(5, 2, 3), np.array([3, 1, 4, 1, 5], np.uint8)
    for start in ("train", "t10k", "val"):
        idx(tmp_path / f"{start}-images-idx3-ubyte.gz", images)
        idx(tmp_path / f"{start}-labels-idx1-ubyte.gz", labels)
    for source in (Idx(path=str(tmp_path)), Idx(path=str(tmp_path / "train-images-idx3-ubyte.gz"), test_path=None)):
        if source.path == str(tmp_path):
            found = {e["where"]: e for e in source.examples("test")}
            ordered = [found[name] for name in sorted(found)]
            assert [e["label"] for e in ordered] == ["3", "1", "4", "1", "5"]
            np.testing.assert_array_equal(np.stack([e["image"][0] for e in ordered]), images)
        else:
            assert source.table("test").labels[0] in "31415"


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda p: idx(p / "train-labels.gz", np.zeros(3, np.uint8)), "holds 4 images and train-labels.gz 3 labels"),
        (lambda p: (p / "train-labels.gz").unlink(), "has no labels beside it"),
        (lambda p: idx(p / "train-images.gz", np.zeros((2, 2), np.uint8)), "2 axes"),
        (lambda p: (p / "train-images.gz").write_bytes(gzip.compress(b"\0\0\x0d\1" + b"\0" * 9)), "not an IDX file"),
        (
            lambda p: (p / "train-images.gz").write_bytes(gzip.compress(b"\0\0\x08\3" + b"\0\0\0\2" * 3)),
            "2 bytes by its header, but holds 0",
        ),
        (lambda p: (p / "train-images.gz").unlink(), "there is no file train"),
    ],
)
def test_broken_idx_files(tmp_path: Path, break_it, said: str) -> None:  # type: ignore[no-untyped-def]
    idx(tmp_path / "train-images.gz", np.zeros((4, 2, 2), np.uint8))
    idx(tmp_path / "train-labels.gz", np.zeros(4, np.uint8))
    break_it(tmp_path)
    with pytest.raises(ValueError, match=said):
        Idx(path=str(tmp_path)).table("train")


@pytest.mark.skipif(not (DATA / "mnist").is_dir(), reason="shared/data/mnist is not here")
def test_mnist_is_read() -> None:
    source = Idx(path=str(DATA / "mnist"))
    assert len(source.table("test")) == 10_000
    counts = np.bincount(list(map(int, source.table("test").labels)))  # type: ignore[arg-type]
    assert counts.tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]  # of the published test set
