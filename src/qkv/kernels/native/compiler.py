"""Loads the C++ kernels for the CPU: the prebuilt ones of a wheel, or compiled when first wanted. Nothing requires them."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch

from . import prebuilt
from .prebuilt import LINK

COMPILE = (*prebuilt.FLAGS, "-march=native")
PATIENCE = 300.0  # seconds for one command of the compiler

_log = logging.getLogger(__name__)


def compiler() -> str | None:
    """The C++ compiler command, which may have several words: `ccache g++`."""
    return os.environ.get("CXX", "").strip() or shutil.which("g++") or shutil.which("clang++")


@cache
def available(name: str) -> bool:
    """Whether the kernels in NAME.cpp may be had: they are prebuilt for this processor, or there is a compiler."""
    return prebuilt.find(_source(name)) is not None or compiler() is not None


def _source(name: str) -> Path:
    return Path(__file__).parent / f"{name}.cpp"


@cache
def library(name: str) -> ctypes.CDLL | None:
    """The kernels in NAME.cpp: prebuilt for this processor, else compiled once for this machine and source.

    None, and a line in the log, where there are neither.
    """
    ready = prebuilt.find(_source(name))
    if ready is not None:
        try:
            return ctypes.CDLL(str(ready))
        except OSError as error:
            _log.warning("%s, which came with qkv, can't be loaded: %s", ready.name, error)
    command = compiler()
    if command is None:
        _log.info(
            "no C++ compiler was found; PyTorch's own operations stand in for qkv's kernels in %s.cpp, and are slower",
            name,
        )
        return None
    try:
        return ctypes.CDLL(str(_built(command, _source(name))))
    except (OSError, RuntimeError, ValueError) as error:
        _log.warning("%s can't build %s.cpp, which is left out: %s", command, name, error)
        return None


def _built(compiler: str, source: Path) -> Path:
    """The library's file, made where it isn't there yet or isn't whole: its name ends in a checksum of what it holds."""
    words = shlex.split(compiler)
    texts = (path.read_text(encoding="utf-8") for path in (source, *sorted(source.parent.glob("*.h"))))
    about = "\0".join([compiler, instruction_sets(), *COMPILE, *LINK, *texts])
    stem, place = f"{source.stem}-{hashlib.sha256(about.encode()).hexdigest()[:16]}", _folder()
    for path in sorted(place.glob(f"{stem}-*.so")):
        if path.stem == f"{stem}-{_checksum(path)}":
            return path
        path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        compiled, made = str(Path(folder) / "made.o"), Path(folder) / "made.so"
        _run([*words, *COMPILE, str(source), "-o", compiled])
        _run([*words, *LINK, compiled, "-o", str(made)])
        path = place / f"{stem}-{_checksum(made)}.so"
        made.replace(path)
    return path


def instruction_sets() -> str:
    """What this machine's processor can do, on which `-march=native` depends."""
    found = [platform.machine(), platform.processor(), torch.backends.cpu.get_cpu_capability()]
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        lines = []
    told = (
        line.split(":", 1) for line in lines if line.startswith(("flags", "Features", "model name")) and ":" in line
    )
    return "\n".join([*found, *sorted({" ".join(sorted(value.split())) for _, value in told})])


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def _folder() -> Path:
    """Where libraries are kept: in `$QKV_CACHE` or `~/.cache/qkv`. Where others might put some there, it is a folder of this
    process alone, or a ValueError for a `$QKV_CACHE`."""
    chosen = os.environ.get("QKV_CACHE")
    base = Path(chosen or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qkv")
    folder = (base / "kernels").absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = folder.resolve()
        _make_own(folder)
        reason = _distrusted(folder)
    except OSError as error:
        reason = f"{folder} can't be used ({error.strerror or error})"
    if reason is None:
        return folder
    if chosen:
        raise ValueError(f"{reason}, and code is loaded from there; set QKV_CACHE to a folder of your own")
    return _own(reason)


def _make_own(folder: Path) -> None:
    """Take from others the right to write into a folder of ours, which a mask of 002 gives them, with what they may have
    put there."""
    if not hasattr(os, "getuid"):
        return
    found = folder.stat()
    if found.st_uid == os.getuid() and found.st_mode & 0o022:
        folder.chmod(0o700)
        for path in folder.glob("*.so"):
            path.unlink()


@cache
def _own(reason: str) -> Path:
    """A folder that lasts as long as this process."""
    made = Path(tempfile.mkdtemp(prefix="qkv-kernels-")).resolve()  # mode 0700
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    doubt = _distrusted(made)
    if doubt is not None:
        raise ValueError(f"{reason}, and {doubt}; set QKV_CACHE to a folder of your own")
    _log.warning(
        "%s, so kernels are built for this process alone; set QKV_CACHE to a folder of your own to keep them", reason
    )
    return made


def _distrusted(folder: Path) -> str | None:
    """Which part of a path others could change, and why."""
    if not hasattr(os, "getuid"):
        return None
    for place in (folder, *folder.parents):
        reason = _doubtful(place, os.getuid(), 0o022 if place == folder else 0o002)
        if reason is not None:
            return f"{place} {reason}"
    return None


def _doubtful(place: Path, user: int, others: int) -> str | None:
    """Why what stands in a folder might not be this user's."""
    found = place.stat()
    if found.st_uid not in (user, 0):
        return "belongs to another user"
    sticky = found.st_mode & 0o1000 and others == 0o002  # others may write there, but not in what is ours
    return "can be written by other users" if found.st_mode & others and not sticky else None


def _run(command: list[str]) -> None:
    """Run a command, for as long as `PATIENCE` lasts. Raises RuntimeError with what it said where it fails."""
    with tempfile.TemporaryFile() as said:  # not a pipe, which what the command leaves behind would keep open
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{shlex.join(command[:2])} … was not done after {PATIENCE:g} seconds") from None
        finally:
            _end(process)
        said.seek(0)
        text = said.read().decode(errors="replace").strip()
    if status:
        raise RuntimeError(
            f"{shlex.join(command[:2])} … ended with status {status}: {text[-2000:] or 'it said nothing'}"
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a running command and all its child processes."""
    if process.poll() is not None:
        return
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
