"""Packed files of every kind, whole and broken."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qkv.data.files import compressed
from qkv.data.files.lines import Lines
from qkv.data.readers.parallel_text import Pairs
from qkv.data.readers.text import Text


def zstd(data: bytes) -> bytes:
    """A frame with a checksum, as the command zstd writes it."""
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    library = pytest.importorskip(name, reason=f"{name} is not installed")
    return library.compress(data, options={library.CompressionParameter.checksum_flag: 1})


PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstd,
}


@pytest.mark.parametrize("suffix", PACK)
def test_every_packing_is_read_and_broken_ones_are_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.tsv{suffix}"
    whole = PACK[suffix]("".join(f"hello {i}\thallo {i}\n" for i in range(500)).encode())
    path.write_bytes(whole)
    assert Lines(path)[1] == "hello 1\thallo 1" and compressed.bare_name(path) == "a.tsv"
    assert next(Pairs(path=str(path)).examples())["source"].startswith("hello")
    loud = tmp_path / f"B.TSV{suffix.upper()}"
    loud.write_bytes(whole)
    assert Lines(loud)[1] == "hello 1\thallo 1" and compressed.suffix_of(loud) == ".tsv"
    assert next(Pairs(path=str(loud)).examples())["target"].startswith("hallo")
    for damaged in (
        whole[:-20],
        whole[: len(whole) // 2] + b"\0\1\2\3" + whole[len(whole) // 2 + 4 :],
        b"no such thing",
    ):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"a\.tsv\{suffix}' is not a whole (gzip|xz|bzip2|zstd) file"):
            Lines(path)


def test_zstd_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in compressed._ZSTD:
        monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "a.txt.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    message = (
        r"a\.txt\.zst' is compressed with zstd; reading it needs [\w.]+, which is not .*: pip install 'qkv\[zstd\]'"
    )
    with pytest.raises(ValueError, match=message):
        Lines(tmp_path / "a.txt.zst")


def test_a_library_for_zstd_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "standin_zstd.py").write_text("from gzip import BadGzipFile as ZstdError, open\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(compressed, "_ZSTD", ("no_such_module", "standin_zstd"))
    (tmp_path / "a.txt.zst").write_bytes(gzip.compress(b"one\ntwo\n"))
    assert len(Lines(tmp_path / "a.txt.zst")) == 2


def test_a_broken_file_of_a_folder_is_refused_or_left_out_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.txt.xz").write_bytes(lzma.compress(b"two\n" * 999)[:-9])
    (tmp_path / "c.txt.bz2").write_bytes(bz2.compress(b"three\n"))
    spec = Text(path=str(tmp_path), validation_path=str(tmp_path / "a.txt"), test_path=str(tmp_path / "a.txt"))
    with pytest.raises(ValueError, match=r"b\.txt\.xz' is not a whole xz file"):
        spec.table("train")
    skipping = spec.replace(on_error="skip")
    assert [one["text"] for one in skipping.examples(shuffle=False)] == ["one\n", "three\n"]
    assert any("skipped: " in note and "b.txt.xz" in note for note in skipping.notes())
    with pytest.raises(ValueError, match=r"none of the 1 files can be read: .*b\.txt\.xz"):
        skipping.replace(path=str(tmp_path / "b.txt.xz")).table("train")


def test_zstd_files_of_several_frames_are_read_to_their_end(tmp_path: Path) -> None:
    (tmp_path / "a.txt.zst").write_bytes(zstd(b"one\n") + zstd(b"two\n"))
    assert [Lines(tmp_path / "a.txt.zst")[i] for i in range(2)] == ["one", "two"]
