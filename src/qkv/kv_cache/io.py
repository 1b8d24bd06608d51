"""A cache as a safetensors file: what it is of in the header, and the tensors of every slot table and layer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..core import atomic
from ..core.layout import Layout
from .full import Saved

if TYPE_CHECKING:
    from .cache import Cache

KEY, VERSION = "qkv.cache", 1  # files call slot tables "ledgers"
_FACTS = ("padding", "one_segment", "sequential", "start")


def save(cache: Cache, path: str | Path) -> None:
    """Write a cache. Raises ValueError for states that have no form in a file."""
    tensors: dict[str, Tensor] = {}
    for i, state in enumerate(cache.layers):
        _add(tensors, f"layers.{i}", _saved(state, i).tensors())
    for i, cross in enumerate(cache.cross):
        if cross.filled:
            _add(tensors, f"cross.{i}", dict(zip("kv", cross.keys_values, strict=True)))
            _add(tensors, f"cross.{i}.layout", _layout_tensors(cross.layout))
    slot_tables = []
    for i, slot_table in enumerate(cache.slot_tables.values()):
        _add(tensors, f"ledgers.{i}", slot_table.tensors())
        _add(tensors, f"ledgers.{i}.kept", _layout_tensors(slot_table.kept))
        slot_tables.append({"length": slot_table.length, "kept": _layout_facts(slot_table.kept)})
    if cache._next is not None:
        tensors["next"] = cache._next
    header = {
        "version": VERSION,
        "about": cache.about,
        "batch_size": cache.batch_size,
        "length": cache.length,
        "longest": cache._longest,
        "ledgers": slot_tables,
        "cross": [_layout_facts(cross.layout) if cross.filled else None for cross in cache.cross],
    }
    own = {name: t.detach().contiguous().clone() for name, t in tensors.items()}
    with atomic.whole(path) as beside:
        save_file(own, str(beside), metadata={KEY: json.dumps(header)})


def load(cache: Cache, path: str | Path) -> None:
    """Fill a cache that was started for the same model, in the same form, from a file. Nothing is changed on errors."""
    header, tensors = _read(path, cache.device)
    if header["about"] != json.loads(json.dumps(cache.about)):
        raise ValueError(f"{path} is a cache of {_told(header['about'])}, and this one is of {_told(cache.about)}")
    if cache.length:
        raise ValueError(f"the cache holds {cache.length} tokens already; load into one that was just started")
    for i, (slot_table, facts) in enumerate(zip(cache.slot_tables.values(), header["ledgers"], strict=True)):
        mine = _below(tensors, f"ledgers.{i}")
        slot_table.restore(facts["length"], _layout(_below(mine, "kept"), facts["kept"]), mine)
    for i, state in enumerate(cache.layers):
        _saved(state, i).restore(_below(tensors, f"layers.{i}"))
    for i, (cross, facts) in enumerate(zip(cache.cross, header["cross"], strict=True)):
        mine = _below(tensors, f"cross.{i}")
        layout = _layout(_below(mine, "layout"), facts)
        if layout is not None:
            cross.fill(mine["k"], mine["v"], layout)
    cache.batch_size, cache.length, cache._longest = header["batch_size"], header["length"], header["longest"]
    cache._next = tensors.get("next")


def _read(path: str | Path, device: torch.device | str | None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(str(path), "pt") as file:
            header = json.loads((file.metadata() or {}).get(KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dictionary)
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} can't be read as a cache: {error}") from None
    if not isinstance(header, dict) or header.get("version") != VERSION:
        raise ValueError(f"{path} is no cache of this version of qkv; make one with Cache.save")
    return header, {name: t.to(device) for name, t in tensors.items()}


def _saved(state: object, layer: int) -> Saved:
    if not isinstance(state, Saved):
        raise ValueError(f"layer {layer} remembers in a {type(state).__name__}, which has no form in a file")
    return state


def _told(about: Any) -> str:
    """What a cache is of, in few words."""
    if not isinstance(about, dict):
        return "no known model"
    layers = about.get("layers", [])
    first = ", ".join(f"{name} {value}" for name, value in layers[0].items()) if layers else "nothing"
    alike = "each" if all(layer == layers[0] for layer in layers) else "the first"
    return f"{len(layers)} layers, {alike} {first}"


def _add(tensors: dict[str, Tensor], name: str, more: dict[str, Tensor]) -> None:
    tensors.update({f"{name}.{key}": t for key, t in more.items()})


def _below(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}."): t for key, t in tensors.items() if key.startswith(f"{name}.")}


def _layout_tensors(layout: Layout | None) -> dict[str, Tensor]:
    if layout is None:
        return {}
    fields = {"positions": layout.positions, "segments": layout.segments, "roles": layout.roles}
    return {name: t for name, t in fields.items() if t is not None}


def _layout_facts(layout: Layout | None) -> dict[str, Any] | None:
    return None if layout is None else {name: getattr(layout, name) for name in _FACTS}


def _layout(tensors: dict[str, Tensor], facts: dict[str, Any] | None) -> Layout | None:
    if facts is None:
        return None
    return replace(Layout(tensors["positions"], tensors.get("segments"), tensors.get("roles")), **facts)
