"""Prebuilt C++ kernels: the instruction sets that wheels contain them for, and the library that this processor can run.

`setup.py` loads this file by itself, so it imports only the standard library.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

X86 = ("x86_64", "AMD64", "amd64", "i386", "i686")


def flags_for(machine: str) -> tuple[str, ...]:
    """The compiler's flags for a kind of machine. Compilers for other ones than x86 refuse its width of vectors."""
    width = ("-mprefer-vector-width=512",) if machine in X86 else ()
    return ("-O3", *width, "-fopenmp", "-fPIC", "-std=c++17", "-c")


FLAGS = flags_for(platform.machine())
LINK = ("-shared",)  # without OpenMP's library: PyTorch has loaded one, and two would compete for the cores


class Target(NamedTuple):
    """A set of instruction sets: the compiler's flags, and Linux's names of the instruction sets that a processor must
    have."""

    name: str
    flags: tuple[str, ...]
    needs: frozenset[str]


_V3 = frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"])
_V4 = _V3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])
_AMX = _V4 | frozenset(["avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"])
_GENERAL = (Target("x86-64-v4", ("-march=x86-64-v4",), _V4), Target("x86-64-v3", ("-march=x86-64-v3",), _V3))
_MATRIX = (Target("amx", ("-march=x86-64-v4", "-mavx512bf16", "-mamx-tile", "-mamx-bf16", "-mamx-int8"), _AMX),)
_VNNI = (
    Target("bf16", ("-march=x86-64-v4", "-mavx512vnni", "-mavx512bf16"), _V4 | {"avx512_vnni", "avx512_bf16"}),
    Target("vnni", ("-march=x86-64-v4", "-mavx512vnni"), _V4 | {"avx512_vnni"}),
)
TARGETS = {  # of each source, the fastest first
    "block_sparse": _GENERAL,
    "quantized_kv": _GENERAL,
    "decoding": _GENERAL,
    "products": (*_VNNI, *_GENERAL),
    "encoding": (_VNNI[0], _GENERAL[0]),
    "gelu": _GENERAL,
    "dropout": _GENERAL,
    "weight_gradients": (_GENERAL[0],),
    "bpe_dropout": _GENERAL[1:],
    "transposed": _GENERAL[1:],
    "bf16_amx": _MATRIX,
    "quantized_kv_amx": _MATRIX,
}


def supported() -> bool:
    """Whether kernels are prebuilt for this kind of machine: Linux on x86-64."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def file_name(source: Path, target: Target) -> str:
    """The library's file name, with a checksum of its sources and flags, so no other library is mistaken for it."""
    digest = hashlib.sha256()
    for path in (source, *sorted(source.parent.glob("*.h"))):
        digest.update(path.read_bytes())
    digest.update(repr((FLAGS, LINK, target.flags)).encode())
    return f"{source.stem}.{target.name}.{digest.hexdigest()[:16]}.so"


@cache
def find(source: Path) -> Path | None:
    """The fastest prebuilt library that this processor can run; None if there is none."""
    if not supported():
        return None
    for target in TARGETS.get(source.stem, ()):
        if not target.needs <= processor_flags() or not any(source.parent.glob(f"{source.stem}.{target.name}.*.so")):
            continue  # without a checksum of all sources
        path = source.parent / file_name(source, target)
        if path.is_file():
            return path
    return None


@cache
def processor_flags() -> frozenset[str]:
    """The processor's instruction sets that processes may use; empty if Linux doesn't list them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    cores = [frozenset(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags") and ":" in line]
    return frozenset.intersection(*cores) if cores else frozenset()
