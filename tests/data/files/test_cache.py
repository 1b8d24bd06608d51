"""The cache of inflated files and line indexes: what is half, changed or of somebody else is never read."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from qkv.data.files import cache, compressed, encodings, lines
from qkv.data.files.lines import Lines

TEXT = "".join(f"line {i}\n" for i in range(500))


def forget() -> None:
    """As a new process would begin."""
    for memory in (compressed.bytes_of, encodings.text_of, lines._line_ends):
        memory.cache_clear()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "IN_MEMORY", 1000)
    forget()
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    return tmp_path / "a.txt.gz"


def kept(path: Path, suffix: str) -> Path:
    (found,) = (path.parent / "cache").glob(f"*{suffix}")
    return found


@pytest.mark.parametrize("suffix", [".inflated", ".lines"])
@pytest.mark.parametrize("damage", ["half", "byte", "empty", "longer", "another trailer"])
def test_a_damaged_cache_is_made_again(path: Path, suffix: str, damage: str) -> None:
    assert len(Lines(path)) == 500
    place = kept(path, suffix)
    content = bytearray(place.read_bytes())
    if damage == "byte":
        content[100] ^= 8
    made = {"half": content[: len(content) // 16 * 8], "empty": b"", "longer": content + b"12345678"}
    place.unlink()  # the mapped one lives on
    place.write_bytes(made.get(damage, content[:-8] + b"\0" * 8 if damage == "another trailer" else content))
    forget()
    lines = Lines(path)
    assert "".join(f"{lines[i]}\n" for i in range(len(lines))) == TEXT


def test_a_cache_that_is_whole_is_read_and_not_made_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Lines(path)
    forget()
    monkeypatch.setattr(compressed, "_inflated", None)
    assert Lines(path)[499] == "line 499"


def test_a_file_of_the_same_size_and_time_is_another(path: Path) -> None:
    assert Lines(path)[0] == "line 0"
    before = path.stat()
    content = bytearray(gzip.compress(TEXT.replace("line 0\n", "LINE 0\n", 1).encode()))
    content[4:8] = path.read_bytes()[4:8]
    path.write_bytes(bytes(content))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    forget()
    assert Lines(path)[0] == "LINE 0"
    assert len(list((path.parent / "cache").iterdir())) == 2  # in place of what was there


def test_nothing_is_left_of_a_file_that_breaks_off(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "CHUNK", 1500)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="not a whole gzip file"):
        Lines(path)
    assert list((path.parent / "cache").iterdir()) == []


def fallback(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that is taken if the chosen one can't be made."""
    (path.parent / "file").touch()
    (path.parent / "tmp").mkdir()
    monkeypatch.setenv("QKV_CACHE", str(path.parent / "file" / "cache"))
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(path.parent / "tmp"))
    return cache._fallback()


def test_the_fallback_is_made_for_its_owner_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = fallback(path, monkeypatch)
    assert len(Lines(path)) == 500 and place.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("how", ["written by others", "link", "another's"])
def test_a_fallback_that_others_may_write_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    place = fallback(path, monkeypatch)
    if how == "link":
        (path.parent / "elsewhere").mkdir()
        place.symlink_to(path.parent / "elsewhere")
    else:
        place.mkdir(mode=0o700)
        place.chmod(0o777 if how == "written by others" else 0o700)
    if how == "another's":
        other = os.getuid() + 1
        monkeypatch.setattr(cache.os, "getuid", lambda: other)
        place.rename(cache._fallback())
    with pytest.raises(ValueError, match=r"the cache folder .* QKV_CACHE"):
        Lines(path)


def test_a_small_file_needs_no_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fallback(path, monkeypatch).mkdir(mode=0o777)
    path.write_bytes(gzip.compress(b"one\n"))
    assert len(Lines(path)) == 1


def test_a_full_disk_is_said_with_what_to_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("qkv.core.atomic.os.fsync", full)
    with pytest.raises(
        ValueError,
        match=r"No space left on device\); set the environment variable QKV_CACHE to a folder with more room",
    ):
        Lines(path)


def test_a_kept_file_that_is_open_and_can_not_be_replaced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, where another process has the file of an older state open."""
    Lines(path)
    path.write_bytes(gzip.compress(TEXT.replace("line 0\n", "LINE 0\n", 1).encode()))
    forget()

    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(13, "Access is denied")

    monkeypatch.setattr(Path, "replace", refuse)
    lines = Lines(path)
    assert lines[0] == "LINE 0" and lines[499] == "line 499"
    assert len(list((path.parent / "cache").iterdir())) == 2
