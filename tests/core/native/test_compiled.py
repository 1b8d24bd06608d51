"""Kernels are built where there is a compiler, and left out with a word in the log where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from qkv import attend, causal, window
from qkv.core.backends import tiled
from qkv.core.native import compiled


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    compiled.library.cache_clear()
    yield
    compiled.library.cache_clear()


def test_without_a_compiler_there_are_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiled.shutil, "which", lambda name: None)
    assert compiled.library("coded") is None and compiled.library("sparse") is None


def test_a_compiler_that_fails_is_told_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", "false")
    monkeypatch.setenv("QKV_CACHE", str(tmp_path))
    assert compiled.library("coded") is None
    assert "can't build coded.cpp, which is left out" in caplog.text
    assert not list(tmp_path.rglob("*.so"))


def test_attention_is_the_same_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled, "_WORTH", 0)
    q, k, v = torch.randn(3, 1, 300, 2, 32)
    with_them = attend(q, k, v, pattern=causal() & window(40), backend="tiled")
    compiled.library.cache_clear()
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiled.shutil, "which", lambda name: None)
    torch.testing.assert_close(attend(q, k, v, pattern=causal() & window(40), backend="tiled"), with_them)
