"""Registry of attention backends: modules with `refuses(request)` and `run(request)`, by name."""

from __future__ import annotations

from . import flash, flex, reference, sdpa, softcap
from .cpu import tiled
from .request import Backend

BACKENDS: dict[str, Backend] = {
    "reference": reference,
    "sdpa": sdpa,
    "capped": softcap,
    "tiled": tiled,
    "flex": flex,
    "flash": flash,
}


def register(name: str, backend: Backend) -> None:
    """Add a backend under a name that `attend(backend=name)` then takes."""
    if name in BACKENDS or name == "auto":
        raise ValueError(f"there is a backend {name!r} already")
    BACKENDS[name] = backend
