"""Kernels are built if there is a compiler, and left out with a word in the log if there is none."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from qkv import attend, causal, window
from qkv.nn.kernels.cpu import block_sparse
from qkv.nn.kernels.native import compiler as compiled


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is loaded yet, and nothing prebuilt."""
    monkeypatch.setattr(compiled.prebuilt, "find", lambda source: None)
    for cached in (compiled.library, compiled.available):
        cached.cache_clear()
    yield
    for cached in (compiled.library, compiled.available):
        cached.cache_clear()


def test_without_a_compiler_there_are_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiled.shutil, "which", lambda name: None)
    assert compiled.library("quantized_kv") is None and compiled.library("block_sparse") is None


def test_a_compiler_that_fails_is_told_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", "false")
    monkeypatch.setenv("QKV_CACHE", str(tmp_path))
    assert compiled.library("quantized_kv") is None
    assert "can't build quantized_kv.cpp, which is left out" in caplog.text
    assert not list(tmp_path.rglob("*.so"))


# -- compilers of every kind ------------------------------------------------------------------------------------------------


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="latin-1")
    path.chmod(0o755)
    return str(path)


def spare(tmp_path: Path, text: str = "") -> str:
    """A compiler that makes a library of one function, whatever the source is, in a moment."""
    real = shutil.which("g++") or shutil.which("clang++")
    if real is None:
        pytest.skip("there is no C++ compiler")
    source = tmp_path / "one.cpp"
    source.write_text('extern "C" int one() { return 1; }')
    body = f"""{text}
echo run >> {tmp_path}/runs
for last; do :; done
case "$*" in *-shared*) exec {real} -shared -fPIC {source} -o "$last";; *) : > "$last";; esac"""
    return script(tmp_path / "compiler", body)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text().splitlines())


def again(name: str = "quantized_kv") -> Any:
    compiled.library.cache_clear()
    return compiled.library(name)


def test_what_is_built_is_told_and_found_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", spare(tmp_path))
    caplog.set_level("INFO", "qkv.compiling")
    for _ in range(2):
        assert again().one() == 1
    assert caplog.messages == ["compiling quantized_kv.cpp for this processor, once; this takes some seconds"]
    assert runs(tmp_path) == 2 and len(list(cache.iterdir())) == 1
    assert cache.stat().st_mode & 0o777 == 0o700


def test_existing_libraries_are_found_without_compiling(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    monkeypatch.setenv("CXX", spare(tmp_path))
    assert compiled.existing("quantized_kv") is None and not (tmp_path / "runs").exists()
    assert again().one() == 1
    path = compiled.existing("quantized_kv")
    assert path is not None and path.parent == cache and runs(tmp_path) == 2
    begun = path.read_bytes()[:100]
    path.unlink()  # the process has loaded it, and would crash at its exit if the same file were cut short
    path.write_bytes(begun)
    assert compiled.existing("quantized_kv") is None
    cache.chmod(0o777)
    cache.parent.chmod(0o777)
    assert "can be written by other users" in (compiled.cache_refused() or "")
    assert compiled.existing("quantized_kv") is None


def test_why_a_compiler_fails(tmp_path: Path) -> None:
    command = script(tmp_path / "compiler", "echo 'no such option' >&2; exit 3")
    assert re.fullmatch(r".* ended with status 3: no such option", compiled.why_it_fails(command) or "")
    assert compiled.why_it_fails(spare(tmp_path)) is None


@pytest.mark.parametrize("words", ["env {}", "'{}' -pipe", "  {}  "])
def test_a_command_of_several_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path, words: str) -> None:
    monkeypatch.setenv("CXX", words.format(spare(tmp_path)))
    assert again().one() == 1


@pytest.mark.parametrize("left", [0, 1, 0.5, 0.999])
def test_a_library_that_is_not_whole_is_built_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path, left: float
) -> None:
    monkeypatch.setenv("CXX", spare(tmp_path))
    path = compiled._built(str(tmp_path / "compiler"), Path(compiled.__file__).parent / "quantized_kv.cpp")
    whole = path.read_bytes()
    path.write_bytes(b"\x7fELF" if left == 1 else whole[: int(len(whole) * left)])
    assert again().one() == 1
    assert runs(tmp_path) == 4 and [made.read_bytes() for made in cache.iterdir()] == [whole]


def test_another_processor_has_another_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path) -> None:
    monkeypatch.setenv("CXX", spare(tmp_path))
    again()
    monkeypatch.setattr(compiled, "instruction_sets", lambda: "another")
    again()
    assert len(list(cache.iterdir())) == 2


def test_instruction_sets_are_those_that_the_system_names() -> None:
    if not Path("/proc/cpuinfo").exists():
        pytest.skip("the system has no /proc/cpuinfo")
    flags = re.search(r"^(?:flags|Features)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    assert flags is not None and set(flags[1].split()) <= set(compiled.instruction_sets().split())


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_of_ours_that_others_may_write_becomes_ours_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path, mode: int
) -> None:
    monkeypatch.setenv("CXX", spare(tmp_path))
    again()
    (kept,) = cache.iterdir()
    cache.chmod(mode)
    assert again().one() == 1 and cache.stat().st_mode & 0o777 == 0o700
    assert runs(tmp_path) == 4 and [path.name for path in cache.iterdir()] == [kept.name]  # built again, not trusted


def test_a_parent_that_others_may_write_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", spare(tmp_path))
    cache.mkdir(parents=True)
    cache.parent.chmod(0o777)
    assert again() is None
    assert f"{cache.parent} can be written by other users" in caplog.text and "set QKV_CACHE" in caplog.text
    cache.parent.chmod(0o1777)  # sticky, like /tmp
    assert again().one() == 1


@pytest.mark.parametrize("why", ["can be written by other users", "can't be used"])
def test_a_home_that_is_not_ours_leaves_kernels_for_this_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    monkeypatch.setenv("CXX", spare(tmp_path))
    monkeypatch.delenv("QKV_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    if why == "can't be used":
        (tmp_path / "home").touch()
    else:
        (tmp_path / "home").mkdir()
        (tmp_path / "home").chmod(0o777)
    compiled._own.cache_clear()
    assert again().one() == 1 and again("block_sparse").one() == 1
    assert caplog.text.count(why) == 1 and "for this process only; set QKV_CACHE" in caplog.text
    made = compiled._folder()
    assert made.stat().st_mode & 0o777 == 0o700 and tmp_path / "home" not in made.parents


def test_a_folder_of_another_user_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", spare(tmp_path))
    user = tmp_path.stat().st_uid or 4321
    if tmp_path.stat().st_uid == 0:
        cache.mkdir(parents=True, mode=0o700)
        os.chown(cache, user, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert again() is None and "belongs to another user" in caplog.text


def test_a_compiler_that_hangs_is_ended_with_what_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", script(tmp_path / "slow", f"sleep 60 & echo $! > {tmp_path}/child; wait"))
    monkeypatch.setattr(compiled, "PATIENCE", 1.0)
    started = time.monotonic()
    assert again() is None
    assert time.monotonic() - started < 20 and "did not finish within 1 seconds" in caplog.text
    child, end = int((tmp_path / "child").read_text()), time.monotonic() + 10
    while running(child) and time.monotonic() < end:
        time.sleep(0.05)
    assert not running(child)


def running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_a_compiler_says_need_not_be_utf8(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", script(tmp_path / "latin", "echo 'd\xe9faut'; exit 3"))
    assert again() is None
    assert "ended with status 3: d�faut" in caplog.text
    monkeypatch.setenv("CXX", spare(tmp_path, "echo '\xff\xfe' >&2"))
    assert again().one() == 1


@pytest.mark.parametrize("command", ["no-such-compiler", "'unbalanced", "/"])
def test_what_is_no_command_is_told_of(
    monkeypatch: pytest.MonkeyPatch, cache: Path, caplog: pytest.LogCaptureFixture, command: str
) -> None:
    monkeypatch.setenv("CXX", command)
    assert again() is None
    assert f"{command} can't build quantized_kv.cpp, which is left out" in caplog.text


def test_attention_is_the_same_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_sparse, "MIN_SCORES", 0)
    q, k, v = torch.randn(3, 1, 300, 2, 32)
    with_them = attend(q, k, v, pattern=causal() & window(40), backend="tiled")
    compiled.library.cache_clear()
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiled.shutil, "which", lambda name: None)
    torch.testing.assert_close(attend(q, k, v, pattern=causal() & window(40), backend="tiled"), with_them)
