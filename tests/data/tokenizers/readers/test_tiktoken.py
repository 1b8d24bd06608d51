"""tiktoken files."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from qkv.data.tokenizers.tokenizer import Tokenizer

BYTES = [base64.b64encode(bytes([byte])) + b" %d" % byte for byte in range(256)]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([b"%%% 1"], "line 1 should be a piece in base64 and its rank, not b'%%% 1'"),
        ([*BYTES, b"YWI= x"], "line 257 should be"),
        (BYTES[:-1], "lacks some of the 256 bytes"),
        ([*BYTES, b"YWI= 7"], "the same rank for several pieces"),
    ],
)
def test_tiktoken_files_that_cannot_be_used(lines: list[bytes], says: str, tmp_path: Path) -> None:
    (tmp_path / "a.tiktoken").write_bytes(b"\n".join(lines))
    with pytest.raises(ValueError, match=says) as caught:
        Tokenizer.load(tmp_path)
    assert "is not a usable tiktoken file" in str(caught.value)


def test_tiktoken_ranks_are_ids_and_merges(tmp_path: Path) -> None:
    (tmp_path / "a.tiktoken").write_bytes(b"\n".join([*BYTES, b"YWI= 256", b"YWJj 257"]))
    assert Tokenizer.load(tmp_path / "a.tiktoken").encode("abcab") == [257, 256]
