import os

import pytest

from qkv.core import durable


def test_a_file_is_replaced_in_one_step(tmp_path, monkeypatch):
    path = tmp_path / "last"
    durable.write_file(path, b"one")

    def dies(handle: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "fsync", dies)
        durable.write_file(path, b"two")
    assert path.read_bytes() == b"one"
    durable.tidy(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["last"]


def test_tidy_brings_back_what_stood_aside(tmp_path):
    for name in (".old-a", ".old-b", "b", ".tmp-c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    durable.tidy(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
    assert (tmp_path / "b/file").read_text() == "b"


def test_sha256(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    assert durable.sha256(tmp_path / "f").startswith("ba7816bf8f01cfea414140de5dae2223")
