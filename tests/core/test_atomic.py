"""A file at its path is whole: what was there stays until the new one is on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qkv.core import atomic


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
