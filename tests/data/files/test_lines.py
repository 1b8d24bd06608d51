from __future__ import annotations

import gzip
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.files import cache
from qkv.data.files.compressed import open_bytes
from qkv.data.files.documents import block_documents
from qkv.data.files.lines import LONGEST, Lines
from qkv.data.readers.parallel_text import Pairs


def test_lines_end_at_line_feeds_only(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\r\ntwo\u2028still two\x0b\x0c\x85\n\nfour".encode())
    lines = Lines(path)
    assert [lines[i] for i in range(len(lines))] == ["one", "two\u2028still two\x0b\x0c\x85", "", "four"]


def test_a_file_of_an_old_mac_is_not_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"one\rtwo\rthree\r")
    with pytest.raises(ValueError, match=r"x\.txt' is one line, because its lines end with carriage returns alone"):
        Lines(tmp_path / "x.txt").check_ends()
    with pytest.raises(ValueError, match="carriage returns alone"):
        Pairs(source=str(tmp_path / "x.txt"), target=str(tmp_path / "x.txt")).table("train")
    (tmp_path / "y.txt").write_bytes(b"one\rtwo\n\rthree\r\n")
    assert len(Lines(tmp_path / "y.txt").check_ends()) == 2


@given(text=st.text(st.sampled_from("aé漢😀\n \r"), min_size=1, max_size=400), chunk=st.integers(1, 50))
def test_lines_match_the_file_whatever_the_chunks(
    tmp_path_factory: pytest.TempPathFactory, text: str, chunk: int
) -> None:
    path = tmp_path_factory.mktemp("x") / "a.txt"
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "CHUNK", chunk)
        lines = Lines(path)
    expected = text.removesuffix("\n").split("\n")
    assert [lines[i] for i in range(len(lines))] == [line.removesuffix("\r") for line in expected]


@pytest.mark.parametrize("before", [0, 3, 100_000])
@pytest.mark.parametrize("ending", [b"", b"\n", b" more\n"])
def test_invalid_utf8_names_file_and_line(tmp_path: Path, before: int, ending: bytes) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"gut\n" * before + "schön".encode("latin1") + ending)
    with pytest.raises(ValueError, match=rf"latin\.txt', line {before + 1:,}, is not valid UTF-8"):
        Lines(path)


def test_a_character_cut_off_at_the_end_is_invalid(tmp_path: Path) -> None:
    path = tmp_path / "cut.txt"
    path.write_bytes("ok\nschö".encode()[:-1])
    with pytest.raises(ValueError, match="line 2, is not valid UTF-8"):
        Lines(path)


def test_missing_empty_folder_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no file .*nowhere\.txt"):
        open_bytes(tmp_path / "nowhere.txt")
    (tmp_path / "empty.txt").touch()
    with pytest.raises(ValueError, match=r"empty\.txt' is empty"):
        open_bytes(tmp_path / "empty.txt")
    with gzip.open(tmp_path / "empty.txt.gz", "wb"):
        pass
    with pytest.raises(ValueError, match=r"empty\.txt\.gz' is empty"):
        open_bytes(tmp_path / "empty.txt.gz")
    with pytest.raises(ValueError, match="is a folder"):
        open_bytes(tmp_path)
    (tmp_path / "not.gz").write_bytes(b"plain text")
    with pytest.raises(ValueError, match="not a whole gzip file"):
        open_bytes(tmp_path / "not.gz")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"line\n" * 1000)[:-20])
    with pytest.raises(ValueError, match="not a whole gzip file"):
        open_bytes(tmp_path / "cut.gz")


def test_large_files_are_indexed_and_inflated_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "IN_MEMORY", 1000)
    text = "".join(f"line {i}\n" for i in range(500))
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("a.txt", "a.txt.gz"):
        lines = Lines(tmp_path / name)
        assert len(lines) == 500 and lines[499] == "line 499"
    assert sorted(p.suffix for p in (tmp_path / "cache").iterdir()) == [".inflated", ".lines", ".lines"]


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    assert len(Lines(path)) == 1
    path.write_text("one\ntwo\n")
    assert len(Lines(path)) == 2


def test_a_huge_line_is_indexed_quickly(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"short\n" + b"x" * (10 << 20) + b"\nlast\n")
    start = time.perf_counter()
    lines = Lines(path)
    assert len(lines) == 3 and lines[2] == "last" and len(lines[1]) == 10 << 20
    assert time.perf_counter() - start < 2


def test_a_line_or_block_without_end_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qkv.data.files.lines.LONGEST", 5000)
    monkeypatch.setattr(cache, "CHUNK", 1000)
    path = tmp_path / "a.txt"
    path.write_bytes(b"short\n" + b"x" * 5000 + b"\n" + b"y" * 5001 + b"\nlast\n")
    with pytest.raises(ValueError, match=r"a\.txt', line 3: the line has more than .* MiB"):
        Lines(path)
    lines = Lines(path, strict=False)
    assert len(lines) == 4 and lines[3] == "last" and len(lines[1]) == 5000
    with pytest.raises(ValueError, match="line 3: the line has more"):
        lines[2]
    (tmp_path / "b.txt").write_bytes(b"line\n" * 2000)
    with pytest.raises(ValueError, match="line 1: the block that begins there has more"):
        block_documents(Lines(tmp_path / "b.txt"))[0]


def test_a_huge_line_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with path.open("wb") as out:
        out.truncate(LONGEST * 4)
        out.write(b"text\n" * 1000)  # else it would be refused for its zeros
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="line 1,001: the line has more than 64 MiB"):
            Lines(path)
        assert tracemalloc.get_traced_memory()[1] < LONGEST // 4
    finally:
        tracemalloc.stop()
