"""What `qkv doctor` says of folders and disks."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from qkv.learn.doctor import storage


def test_every_folder_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, folder in {"QKV_CACHE": "own", "HF_HOME": "hub"}.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    checks = {check.name: check.value for check in storage.checks()}
    assert list(checks) == ["this folder", "cache of qkv", "cache of the Hub", "temporary files"]
    assert checks["cache of qkv"].startswith(f"{tmp_path / 'own'}, ")
    assert checks["cache of the Hub"].startswith(f"{tmp_path / 'hub'}, ")
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert storage._hub() == tmp_path / "huggingface"


@pytest.mark.parametrize(("free", "status"), [(100 << 30, "ok"), (3 << 30, "note"), (1 << 20, "problem")])
def test_little_free_space_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, status: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    check = storage._folder("cache", tmp_path / "new" / "folder", "choose another")
    assert check.status == status
    assert check.remedy == ("" if status == "ok" else "free some space, or choose another")


def test_folders_that_can_not_be_written_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    check = storage._folder("cache", file / "folder", "choose another")
    assert (check.status, check.value) == ("problem", f"{file / 'folder'}: {file} is not a folder")
    monkeypatch.setattr(storage.os, "access", lambda path, mode: False)
    check = storage._folder("cache", tmp_path, "choose another")
    assert (check.status, check.remedy) == ("problem", "choose another") and "can't be written to" in check.value
