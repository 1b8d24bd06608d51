"""Load the C++ kernels for CPUs: prebuilt ones from a wheel, or compiled on first use. They are optional."""

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

from . import prebuilt, structures
from .prebuilt import LINK

COMPILE = (*prebuilt.FLAGS, "-march=native")
PATIENCE = 300.0  # seconds for one command of the compiler

_log = logging.getLogger(__name__)
_builds = logging.getLogger("qkv.compiling")  # which the command line shows in a terminal


def compiler() -> str | None:
    """The C++ compiler command, which may have several words: `ccache g++`."""
    return os.environ.get("CXX", "").strip() or shutil.which("g++") or shutil.which("clang++")


@cache
def available(name: str) -> bool:
    """Whether the kernels in NAME.cpp are prebuilt for this processor, or there is a compiler for them."""
    return prebuilt.find(_source(name)) is not None or compiler() is not None


def _source(name: str) -> Path:
    return Path(__file__).parent / f"{name}.cpp"


@cache
def library(name: str) -> ctypes.CDLL | None:
    """The kernels in NAME.cpp: prebuilt for this processor, else compiled once for this machine and source.

    Returns None and logs the reason if neither works, or if a structure of Python's differs from the source's.
    """
    loaded = _loaded(name)
    reason = None if loaded is None else structures.mismatch(name, loaded)
    if reason is not None:
        _log.warning("the kernels in %s.cpp are left out, and slower PyTorch operations used instead: %s", name, reason)
        return None
    return loaded


def _loaded(name: str) -> ctypes.CDLL | None:
    ready = prebuilt.find(_source(name))
    if ready is not None:
        try:
            return ctypes.CDLL(str(ready))
        except OSError as error:
            _log.warning("the prebuilt library %s can't be loaded: %s", ready.name, error)
    command = compiler()
    if command is None:
        _log.info(
            "no C++ compiler was found for the kernels in %s.cpp; slower PyTorch operations are used instead",
            name,
        )
        return None
    try:
        return ctypes.CDLL(str(_built(command, _source(name))))
    except (OSError, RuntimeError, ValueError) as error:
        _log.warning("%s can't build %s.cpp, which is left out: %s", command, name, error)
        return None


def existing(name: str) -> Path | None:
    """The file that `library` would load: prebuilt or compiled earlier; None if there is none."""
    source, command = _source(name), compiler()
    ready = prebuilt.find(source)
    if ready is not None or command is None or cache_refused() is not None:
        return ready
    return _compiled_earlier(_cache().resolve(), _stem(command, source))


def why_it_fails(command: str) -> str | None:
    """Why a compiler can't compile kernels, with its own message, by an empty source; None if it can."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "empty.cpp"
            source.write_text("#include <omp.h>\n", encoding="utf-8")
            _run([*shlex.split(command), *COMPILE, str(source), "-o", str(source.with_suffix(".o"))])
    except (OSError, RuntimeError, ValueError) as error:
        return str(error)
    return None


def _built(compiler: str, source: Path) -> Path:
    """The library's file, compiled if it is missing or incomplete."""
    words, stem, cache = shlex.split(compiler), _stem(compiler, source), _folder()
    earlier = _compiled_earlier(cache, stem)
    if earlier is not None:
        return earlier
    _builds.info("compiling %s.cpp for this processor, once; this takes some seconds", source.stem)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        compiled, linked = str(Path(folder) / "kernels.o"), Path(folder) / "kernels.so"
        _run([*words, *COMPILE, str(source), "-o", compiled])
        _run([*words, *LINK, compiled, "-o", str(linked)])
        path = cache / f"{stem}-{_checksum(linked)}.so"
        linked.replace(path)
    return path


def _stem(compiler: str, source: Path) -> str:
    """The first part of a library's file name, with a checksum of everything that it is compiled from."""
    texts = (path.read_text(encoding="utf-8") for path in (source, *sorted(source.parent.glob("*.h"))))
    inputs = "\0".join([compiler, instruction_sets(), *COMPILE, *LINK, *texts])
    return f"{source.stem}-{hashlib.sha256(inputs.encode()).hexdigest()[:16]}"


def _compiled_earlier(cache: Path, stem: str) -> Path | None:
    """A complete library, whose name ends in a checksum of its contents; incomplete ones are deleted."""
    for path in sorted(cache.glob(f"{stem}-*.so")):
        if path.stem == f"{stem}-{_checksum(path)}":
            return path
        path.unlink(missing_ok=True)
    return None


@cache
def instruction_sets() -> str:
    """The processor and its instruction sets, on which `-march=native` depends."""
    names = [platform.machine(), platform.processor(), torch.backends.cpu.get_cpu_capability()]
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        lines = []
    wanted = (line for line in lines if line.startswith(("flags", "Features", "model name")) and ":" in line)
    return "\n".join([*names, *sorted({" ".join(sorted(line.split(":", 1)[1].split())) for line in wanted})])


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def _folder() -> Path:
    """The folder of compiled libraries, in `$QKV_CACHE` or `~/.cache/qkv`.

    If other users could write there, it is a temporary folder of this process. Raises ValueError if `$QKV_CACHE` is such a
    folder.
    """
    reason = cache_refused()
    if reason is None:
        return _cache().resolve()
    if os.environ.get("QKV_CACHE"):
        raise ValueError(f"{reason}, and code is loaded from there; set QKV_CACHE to a folder that you own")
    return _own(reason)


def _cache() -> Path:
    chosen = os.environ.get("QKV_CACHE")
    base = Path(chosen or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qkv")
    return (base / "kernels").absolute()


def cache_refused() -> str | None:
    """Why compiled kernels are not kept in the cache folder, which is created if missing; None if they are."""
    folder = _cache()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = folder.resolve()
        _make_own(folder)
        return _distrusted(folder)
    except OSError as error:
        return f"{folder} can't be used ({error.strerror or error})"


def _make_own(folder: Path) -> None:
    """If others can write to a folder of ours, as with a umask of 002, withdraw that and delete the libraries in it."""
    if not hasattr(os, "getuid"):
        return
    status = folder.stat()
    if status.st_uid == os.getuid() and status.st_mode & 0o022:
        folder.chmod(0o700)
        for path in folder.glob("*.so"):
            path.unlink()


@cache
def _own(reason: str) -> Path:
    """A temporary folder, deleted when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="qkv-kernels-")).resolve()  # mode 0700
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    doubt = _distrusted(folder)
    if doubt is not None:
        raise ValueError(f"{reason}, and {doubt}; set QKV_CACHE to a folder that you own")
    _log.warning(
        "%s, so kernels are built for this process only; set QKV_CACHE to a folder that you own to keep them", reason
    )
    return folder


def _distrusted(folder: Path) -> str | None:
    """Which part of a path other users could change, and why; None if there is none."""
    if not hasattr(os, "getuid"):
        return None
    for place in (folder, *folder.parents):
        reason = _doubtful(place, os.getuid(), 0o022 if place == folder else 0o002)
        if reason is not None:
            return f"{place} {reason}"
    return None


def _doubtful(place: Path, user: int, others: int) -> str | None:
    """Why files in a folder might not be this user's; None if they must be."""
    status = place.stat()
    if status.st_uid not in (user, 0):
        return "belongs to another user"
    sticky = status.st_mode & 0o1000 and others == 0o002  # others may add files, but not change ours
    return "can be written by other users" if status.st_mode & others and not sticky else None


def _run(command: list[str]) -> None:
    """Run a command. Raises RuntimeError with its output if it fails or takes longer than `PATIENCE`."""
    with tempfile.TemporaryFile() as output:  # not a pipe, which child processes could keep open
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{shlex.join(command[:2])} … did not finish within {PATIENCE:g} seconds") from None
        finally:
            _end(process)
        output.seek(0)
        text = output.read().decode(errors="replace").strip()
    if status:
        raise RuntimeError(f"{shlex.join(command[:2])} … ended with status {status}: {text[-2000:] or 'no output'}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a running command and all its child processes."""
    if process.poll() is not None:
        return
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
