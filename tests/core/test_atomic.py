"""A file at its path is whole: what was there stays until the new one is on the disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from qkv.core import atomic, durable


def test_a_file_gets_its_name_when_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "a", []
    path.write_text("old")
    sync = os.fsync
    monkeypatch.setattr(atomic.os, "fsync", lambda file: (seen.append(path.read_text()), sync(file)))
    with atomic.whole(path) as beside:
        beside.write_text("new")
    assert path.read_text() == "new" and seen == ["old", "new"]  # the file before it is renamed, its folder after
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic.whole(path) as beside:
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
    with atomic.whole(tmp_path / "a") as beside:
        beside.write_text("new")
    durable.write_file(tmp_path / "b", b"new")
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text() == "new"
