"""The C++ compiler, and the C++ kernels: whether they are there, load, and compute what PyTorch computes."""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import torch

from ...nn.attention.attend import attend
from ...nn.kernels.native import compiler, prebuilt
from ...nn.patterns.basic import window
from .check import DoctorCheck

SECTION = "kernels"
PURPOSES = {
    "block_sparse": "sparse attention",
    "quantized_kv": "quantized caches",
    "decoding": "decoding",
    "bf16_amx": "bf16 attention with AMX",
    "quantized_kv_amx": "quantized caches with AMX",
}
_INSTALL = {
    "apt-get": "apt install g++",
    "dnf": "dnf install gcc-c++",
    "zypper": "zypper install gcc-c++",
    "pacman": "pacman -S gcc",
    "apk": "apk add g++",
    "brew": "brew install gcc, and set CXX to its g++",
    "conda": "conda install -c conda-forge gxx",
}
_TOLERANCE = 1e-4


def checks(build: bool = False) -> Iterator[DoctorCheck]:
    """Yield the compiler and each source of kernels. With `build`, compile missing ones."""
    command = compiler.compiler()
    reason = None if command is None else compiler.why_it_fails(command)
    works = command is not None and reason is None
    yield _compiler(command, reason)
    for name in PURPOSES:
        if not _fits(name):
            yield DoctorCheck(SECTION, PURPOSES[name], "not used: this processor has no AMX")
            continue
        if build and works:
            compiler.library(name)
        yield _kernels(name, works, build)


def _compiler(command: str | None, reason: str | None) -> DoctorCheck:
    if command is None:
        remedy = next((words for tool, words in _INSTALL.items() if shutil.which(tool)), "install g++ or clang++")
        return DoctorCheck(SECTION, "compiler", "none: models can't be compiled with --compile either", "note", remedy)
    if reason is not None:
        value = f"{command} does not compile kernels: {' '.join(reason.split())[:300]}"
        chosen = bool(os.environ.get("CXX", "").strip())
        remedy = f"{'unset CXX, or ' if chosen else ''}set CXX to a C++17 compiler with OpenMP, such as g++"
        return DoctorCheck(SECTION, "compiler", value, "problem" if chosen else "note", remedy)
    return DoctorCheck(SECTION, "compiler", f"{command}: {_first_line([*shlex.split(command), '--version'])}")


def _first_line(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    return next(iter(done.stdout.splitlines()), "")


def _fits(name: str) -> bool:
    """Whether a kind of kernels is for this processor."""
    matrix = "amx" in name
    return not matrix or prebuilt.TARGETS[name][0].needs <= prebuilt.processor_flags()


def _kernels(name: str, compiles: bool, tried: bool) -> DoctorCheck:
    title, path = PURPOSES[name], compiler.existing(name)
    if path is None:
        return _missing(title, compiles, tried)
    place = "prebuilt" if path.parent == Path(prebuilt.__file__).parent else f"compiled in {path.parent}"
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        return DoctorCheck(SECTION, title, f"{path} can't be loaded: {error}", "problem", f"rm {path}")
    if name == "block_sparse":
        difference = _difference()
        if not difference < _TOLERANCE:
            value = f"{path} computes wrong numbers: they differ by {difference:.2g}"
            remedy = f"rm {path}, and run `qkv doctor --build`; if that does not help, report a bug"
            return DoctorCheck(SECTION, title, value, "problem", remedy)
        place += f", loaded; differs from PyTorch by {difference:.0e}"
    else:
        place += ", loaded"
    return DoctorCheck(SECTION, title, place)


def _missing(title: str, compiles: bool, tried: bool) -> DoctorCheck:
    refused = compiler.cache_refused()
    if compiles and refused is not None:
        value = f"{refused}, so kernels can't be kept there"
        return DoctorCheck(SECTION, title, value, "problem", "set QKV_CACHE to a folder that you own")
    if compiles and tried:
        value = "could not be compiled: the warning above says why"
        return DoctorCheck(SECTION, title, value, "problem", "report it as a bug, with the warning")
    if compiles:
        value = "not compiled yet: the first use waits for that, a few seconds"
        return DoctorCheck(SECTION, title, value, "note", "qkv doctor --build")
    value = "none: slower PyTorch operations are used instead"
    if platform.system() == "Windows":
        return DoctorCheck(SECTION, title, value, "note", "use qkv in WSL, where they work as on Linux")
    return DoctorCheck(SECTION, title, value, "note", "install a compiler as above")


def _difference() -> float:
    """The largest difference of sparse attention by the C++ kernels from the reference."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 256, 2, 32, generator=generator)
    results = [attend(q, k, v, pattern=window(64), backend=name) for name in ("tiled", "reference")]
    return float((results[0] - results[1]).abs().max())
