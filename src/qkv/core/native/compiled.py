"""Kernels of ours in C++ for the CPU, built when they are first wanted, where there is a compiler. Nothing requires them."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

COMPILE = ("-O3", "-march=native", "-mprefer-vector-width=512", "-fopenmp", "-fPIC", "-std=c++17", "-c")
LINK = ("-shared",)  # without OpenMP's library: PyTorch has loaded one, and two would fight for the cores

_log = logging.getLogger(__name__)


def compiler() -> str | None:
    """The command that compiles C++ here."""
    return os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")


@cache
def library(name: str) -> ctypes.CDLL | None:
    """The kernels in NAME.cpp, built once for this machine and source. None, and a line in the log, where they can't be."""
    command = compiler()
    if command is None:
        _log.info(
            "no C++ compiler was found; PyTorch's own operations stand in for qkv's kernels in %s.cpp, and are slower",
            name,
        )
        return None
    try:
        return ctypes.CDLL(str(_built(command, Path(__file__).parent / f"{name}.cpp")))
    except (OSError, subprocess.CalledProcessError) as error:
        _log.warning("%s can't build %s.cpp, which is left out: %s", command, name, getattr(error, "stderr", error))
        return None


def _built(compiler: str, source: Path) -> Path:
    """The library's file, in `$QKV_CACHE` or `~/.cache/qkv`, made where it isn't there yet."""
    texts = (path.read_text() for path in (source, *sorted(source.parent.glob("*.h"))))
    about = "\0".join([compiler, platform.node(), platform.processor(), *COMPILE, *LINK, *texts])
    base = os.environ.get("QKV_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qkv"
    path = Path(base) / "native" / f"{source.stem}-{hashlib.sha256(about.encode()).hexdigest()[:16]}.so"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        compiled, made = str(Path(folder) / f"{source.stem}.o"), str(Path(folder) / path.name)
        for command in ((*COMPILE, str(source), "-o", compiled), (*LINK, compiled, "-o", made)):
            subprocess.run([compiler, *command], check=True, capture_output=True, text=True)
        Path(made).replace(path)
    return path
