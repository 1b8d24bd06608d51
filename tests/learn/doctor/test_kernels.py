"""What `qkv doctor` says of the compiler and of the C++ kernels, and the remedies that it names."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from qkv.learn.doctor import kernels
from qkv.learn.doctor.check import DoctorCheck
from qkv.nn.kernels.native import compiler

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ here")
WRITTEN_IN_C = ("sparse attention", "quantized caches")  # on every processor


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Nothing is loaded yet, prebuilt, or in the cache."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiler.prebuilt, "find", lambda source: None)
    caches = (compiler.library, compiler.available)
    for cached in caches:
        cached.cache_clear()
    yield tmp_path / "cache"
    for cached in caches:
        cached.cache_clear()


def checks(build: bool = False) -> dict[str, DoctorCheck]:
    return {check.name: check for check in kernels.checks(build)}


@pytest.mark.slow  # it compiles all of them
def test_missing_kernels_are_compiled_by_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_fits", lambda name: "amx" not in name)
    before = checks()
    assert before["compiler"].status == "ok" and "g++" in before["compiler"].value
    for name in WRITTEN_IN_C:
        assert before[name].status == "note" and before[name].value.startswith("not compiled yet")
        assert before[name].remedy == "qkv doctor --build"
    for after in (checks(build=True), checks()):
        assert {check.status for check in after.values()} == {"ok"}
        assert "differs from PyTorch by" in after["sparse attention"].value
        assert "no AMX" in after["bf16 attention with AMX"].value


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/apt-get" if name == "apt-get" else None)
    results = checks()
    assert results["compiler"].status == "note" and results["compiler"].remedy == "apt install g++"
    assert results["sparse attention"].value == "none: slower PyTorch operations are used instead"


@pytest.mark.parametrize("command", ["no-such-compiler", "'unclosed", f"{sys.executable} -c pass/0"])
def test_a_compiler_that_does_not_work(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("CXX", command)
    check = checks()["compiler"]
    assert check.status == "problem" and check.value.startswith(f"{command} does not compile kernels: ")
    assert check.remedy.startswith("unset CXX, or set CXX to")


def test_a_cache_that_others_may_write(empty_cache: Path) -> None:
    empty_cache.mkdir()
    empty_cache.chmod(0o777)
    check = checks()["sparse attention"]
    assert check.status == "problem" and f"{empty_cache} can be written by other users" in check.value
    assert check.remedy == "set QKV_CACHE to a folder that you own"


def test_kernels_that_do_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "library", lambda name: None)
    check = checks(build=True)["sparse attention"]
    assert check.status == "problem" and check.value.startswith("could not be compiled")


def test_libraries_that_do_not_load_or_compute_wrong_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(b"not a library")
    monkeypatch.setattr(compiler, "existing", lambda name: library)
    check = checks()["quantized caches"]
    assert check.status == "problem" and f"{library} can't be loaded" in check.value and check.remedy == f"rm {library}"
    monkeypatch.setattr(kernels.ctypes, "CDLL", lambda path: None)
    monkeypatch.setattr(kernels, "_difference", lambda: float("nan"))
    check = checks()["sparse attention"]
    assert check.status == "problem" and "computes wrong numbers" in check.value
