"""Documents of lines, of blocks of lines, and of pieces of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.data.files.documents import FileDocument, block_documents, line_documents
from qkv.data.files.lines import Lines
from qkv.data.tables import ConcatTable


def test_blocks_are_runs_of_lines_between_empty_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\n\na\nb\n\r\n\nc\n\n\nd")
    blocks = block_documents(Lines(path))
    assert [blocks[i] for i in range(len(blocks))] == [{"text": "a\nb"}, {"text": "c"}, {"text": "d"}]


@pytest.mark.parametrize("line", ["a short line\n", "漢字" * 200 + "\n", "é"])
def test_pieces_of_a_file_join_to_the_file(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.txt"
    text = line * (300_000 // len(line.encode()))
    path.write_text(text)
    pieces = FileDocument(path)
    found = [pieces[i] for i in range(len(pieces))]
    assert len(found) > 2 and all(isinstance(piece, dict) for piece in found)
    assert "".join(piece["text"] for piece in found) == text  # type: ignore[index,call-overload]
    assert [piece["piece"] for piece in found] == ["first", *["middle"] * (len(found) - 2), "last"]  # type: ignore[index,call-overload]
    if "\n" in line:
        assert all(piece["text"].endswith("\n") for piece in found)  # type: ignore[index,call-overload]


def test_a_piece_with_invalid_utf8_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * 99 + b"\n" + b"y" * 200_000 + b"\n\xff")
    pieces = FileDocument(path)
    with pytest.raises(ValueError, match=r"a\.txt', line 3, is not valid UTF-8"):
        pieces[len(pieces) - 1]


def test_joined_tables(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\nb\n")
    (tmp_path / "b.txt").write_text("c\n")
    joined = ConcatTable([line_documents(Lines(tmp_path / name)) for name in ("a.txt", "b.txt")])
    assert [joined[i] for i in range(len(joined))] == [{"text": "a"}, {"text": "b"}, {"text": "c"}]
