"""Read and write KV caches as safetensors files: metadata as JSON in the header, and named tensors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ...core import atomic
from ...core.layout import Layout

KEY, VERSION = "qkv.cache", 1
_FACTS = ("padding", "one_segment", "sequential", "start")


def write(path: str | Path, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    own = {name: t.detach().contiguous().clone() for name, t in tensors.items()}
    with atomic.replacing(path) as beside:
        save_file(own, str(beside), metadata={KEY: json.dumps({"version": VERSION, **facts})})


def read(path: str | Path, device: torch.device | str | None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Metadata, and tensors on a device. Raises ValueError for any other file."""
    try:
        with safe_open(str(path), "pt") as file:
            facts = json.loads((file.metadata() or {}).get(KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dictionary)
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} can't be read as a cache: {error}") from None
    if not isinstance(facts, dict) or facts.get("version") != VERSION:
        raise ValueError(f"{path} is not a cache file of this version of qkv; write one with Cache.save")
    return facts, {name: t.to(device) for name, t in tensors.items()}


def describe(about: object) -> str:
    """A short description of the model that a cache belongs to."""
    if not isinstance(about, dict):
        return "no known model"
    layers = about.get("layers", [])
    first = ", ".join(f"{name} {value}" for name, value in layers[0].items()) if layers else "nothing"
    alike = "each" if all(layer == layers[0] for layer in layers) else "the first"
    return f"{len(layers)} layers, {alike} {first}"


def prefixed(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{name}.{key}": t for key, t in tensors.items()}


def below(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `prefixed`: the tensors whose names begin with `name.`, without it."""
    return {key.removeprefix(f"{name}."): t for key, t in tensors.items() if key.startswith(f"{name}.")}


def layout_tensors(layout: Layout | None) -> dict[str, Tensor]:
    if layout is None:
        return {}
    fields = {"positions": layout.positions, "segments": layout.segments, "roles": layout.roles}
    return {name: t for name, t in fields.items() if t is not None}


def layout_facts(layout: Layout | None) -> dict[str, Any] | None:
    return None if layout is None else {name: getattr(layout, name) for name in _FACTS}


def layout_from(tensors: dict[str, Tensor], facts: dict[str, Any] | None) -> Layout | None:
    """The layout that `layout_tensors` and `layout_facts` describe."""
    if facts is None:
        return None
    return replace(Layout(tensors["positions"], tensors.get("segments"), tensors.get("roles")), **facts)
