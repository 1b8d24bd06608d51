"""A file at its path is whole: what was there stays until the new one is on the disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from qkv.core import atomic


def test_a_file_gets_its_name_when_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "a", []
    path.write_text("old")
    sync = os.fsync
    monkeypatch.setattr(atomic.os, "fsync", lambda file: (seen.append(path.read_text()), sync(file)))
    with atomic.replacing(path) as beside:
        beside.write_text("new")
    assert path.read_text() == "new" and seen == ["old", "new"]  # the file before it is renamed, its folder after
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic.replacing(path) as beside:
        beside.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_file_system_that_syncs_no_folders_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = os.fsync

    def refuse(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(22, "Invalid argument")
        sync(file)

    monkeypatch.setattr(os, "fsync", refuse)
    with atomic.replacing(tmp_path / "a") as beside:
        beside.write_text("new")
    atomic.write_file(tmp_path / "b", b"new")
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text() == "new"


def test_a_file_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "last"
    atomic.write_file(path, b"one")

    def dies(handle: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "fsync", dies)
        atomic.write_file(path, b"two")
    assert path.read_bytes() == b"one"
    atomic.tidy(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["last"]


def test_tidy_brings_back_what_stood_aside(tmp_path: Path) -> None:
    for name in (".old-a", ".old-b", "b", ".tmp-c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    atomic.tidy(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
    assert (tmp_path / "b/file").read_text() == "b"


def test_sha256(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    assert atomic.sha256(tmp_path / "f").startswith("ba7816bf8f01cfea414140de5dae2223")
