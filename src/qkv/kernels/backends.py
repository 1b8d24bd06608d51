"""How attention is computed: one module for each way, `refuses(request)` and `run(request)` in each."""

from __future__ import annotations

from . import flash, flex, reference, sdpa
from . import softcap as capped
from .cpu import tiled
from .request import Backend

BACKENDS: dict[str, Backend] = {
    "reference": reference,
    "sdpa": sdpa,
    "capped": capped,
    "tiled": tiled,
    "flex": flex,
    "flash": flash,
}


def register(name: str, backend: Backend) -> None:
    """Add a backend under a name that `attend(backend=name)` then takes."""
    if name in BACKENDS or name == "auto":
        raise ValueError(f"there is a backend {name!r} already")
    BACKENDS[name] = backend
