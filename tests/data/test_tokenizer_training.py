"""Tokenizers are trained on the lines of files as on the lines themselves."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from qkv.data.tokenizer_training import train_from_files
from qkv.data.tokenizers.tokenizer import train


def test_files_are_read_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("low lower lowest\nnew newer\n")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"wide wider widest\n"))
    spec = "bpe"
    trained = train_from_files(spec, [tmp_path / "a.txt", tmp_path / "b.txt.gz"])
    assert trained.encode_batch(["lower wider"]) == train(
        spec, ["low lower lowest", "new newer", "wide wider widest"]
    ).encode_batch(["lower wider"])


def test_a_missing_file_is_named_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no file .*none\.txt"):
        train_from_files("bpe", [tmp_path / "none.txt"])
