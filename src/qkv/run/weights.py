"""`model.safetensors` of a run: checked by its header, against the model's spec, before anything is allocated."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..core.spec import nearest
from ..model.transformer import Transformer, TransformerModel
from ..train.weights import load_model, model_tensors, read_tensors, replace_tensors
from .build import build

HEADER = 64 << 20  # bytes; a header of a million tensors is smaller
_PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")  # a zip, as torch.save writes, or bare
_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


def load(spec: Transformer, path: Path, device: torch.device) -> TransformerModel:
    """The model of a spec with the weights in a file. Raises ValueError naming the file where they don't fit it."""
    check(path, _expected(build(spec, device="meta")))
    model = build(spec, device=device, initialized=False)
    load_model(model, read_tensors(path), where=str(path))
    return model.eval()


def _expected(model: nn.Module) -> dict[str, Tensor]:
    """What `model_tensors` gives of a model with memory: tied tensors once, by their first name."""
    state = model.state_dict(keep_vars=True)
    names: dict[int, str] = {}
    for name, tensor in state.items():
        names.setdefault(id(tensor), name)
    return {name: state[name] for name in names.values()}


def save(model: nn.Module, path: Path) -> None:
    """Write a model's weights, tied ones once, whole or not at all."""
    replace_tensors(path, model_tensors(model))


def check(path: Path, expected: Mapping[str, Tensor]) -> None:
    """That a file is a whole safetensors file with just the expected tensors, of their shapes, and nothing besides."""
    header, start = read_header(path)
    tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
    for name in tensors:
        if name not in expected:
            raise ValueError(f"{path} holds {name!r}, which the model lacks; {nearest(name, expected)}")
    for name, wanted in expected.items():
        if name not in tensors:
            raise ValueError(f"{path} lacks {name!r}, which the model has")
        shape = tuple(tensors[name]["shape"])
        if shape != tuple(wanted.shape):
            raise ValueError(f"{path}: {name} is of shape {shape}, and the model's of {tuple(wanted.shape)}")
        if not tensors[name]["dtype"].endswith(("F16", "F32", "F64")):
            raise ValueError(f"{path}: {name} holds {tensors[name]['dtype']}, and weights are floating-point numbers")
    _check_room(path, tensors, start)


def read_header(path: Path) -> tuple[dict[str, Any], int]:
    """A safetensors file's header and where its data begin. Nothing is unpickled, whatever the file is called."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        length = int.from_bytes(head, "little")
        if len(head) < 8 or length > min(HEADER, size - 8):
            if head.startswith(_PICKLES):
                raise ValueError(
                    f"{path} is a pickle, as torch.save writes, which is never read; save it as safetensors"
                )
            raise ValueError(f"{path} is not a safetensors file, or cut short: {size:,} bytes can't hold its header")
        text = file.read(length)
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        for entry in entries.values():
            begin, end = entry["data_offsets"]
            if entry["dtype"] not in _BYTES or not 0 <= begin <= end or min(entry["shape"], default=0) < 0:
                raise ValueError("an entry is out of range")
            if math.prod(entry["shape"]) * _BYTES[entry["dtype"]] != end - begin:
                raise ValueError("an entry's size is not that of its shape")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not a sound safetensors file: its header is damaged ({error})") from None
    return header, 8 + length


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name occurs twice")
    return made


def _check_room(path: Path, tensors: Mapping[str, Any], start: int) -> None:
    """The tensors' bytes follow one another from the header to the end of the file: no gap, overlap or rest."""
    at = 0
    for begin, end in sorted(entry["data_offsets"] for entry in tensors.values()):
        if begin != at:
            raise ValueError(f"{path} is not a sound safetensors file: its tensors overlap or leave gaps")
        at = end
    size = path.stat().st_size
    if size != start + at:
        raise ValueError(
            f"{path} is damaged or cut short: it is {size:,} bytes long, its header speaks of {start + at:,}"
        )
