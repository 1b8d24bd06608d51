"""Name, save and load the tensors of models and optimizers, in safetensors files (never pickles)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ...core import checksums
from ...core.spec import brief, nearest
from ...nn.layers.lora import trained
from ..optimizers.state import Eager
from .slices import Parts, loaded
from .streaming import Later, stream_tensors

Tensors = Mapping[str, Tensor]


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers, detached, sharing the model's memory; tied ones once, under their first name.

    Of a parameter divided over ranks, this rank's part. For an adapted model only the weights that its adapter trains;
    the others are in the directory that it was loaded from.
    """
    return _once(model, model.state_dict(keep_vars=True).items())


def gathered_tensors(model: nn.Module) -> dict[str, Tensor]:
    """`model_tensors` of a model that is gathered on this rank. `state_dict` would divide it again, by a hook of FSDP2."""
    buffers = {
        f"{path}.{name}".lstrip(".")
        for path, module in model.named_modules(remove_duplicate=False)
        for name in module._buffers
        if name not in module._non_persistent_buffers_set
    }
    named = [pair for pair in model.named_buffers(remove_duplicate=False) if pair[0] in buffers]
    return _once(model, [*model.named_parameters(remove_duplicate=False), *named])


def _once(model: nn.Module, named: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors without copies of the same memory, and of an adapted model only what its adapter trains."""
    own = trained(model)
    seen: set[Any] = set()
    tensors: dict[str, Tensor] = {}
    for name, tensor in named:
        part = local(tensor)
        storage = (part.data_ptr(), part.shape, part.stride()) if part.numel() else id(tensor)
        if storage not in seen and (own is None or name in own):
            seen.add(storage)
            tensors[name] = part.detach()
    return tensors


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a distributed tensor (`DTensor`), sharing its memory; any other tensor as it is."""
    to_local = getattr(tensor, "to_local", None)
    return tensor if to_local is None else to_local()


@torch.no_grad()
def load_model(model: nn.Module, tensors: Parts, where: str = "the weights") -> None:
    """Copy tensors into the model in place, so tied parameters stay tied.

    Raises ValueError if a name or a shape doesn't fit, before anything is changed.
    """
    mine = model_tensors(model)
    missing, unknown = [n for n in mine if n not in tensors], [n for n in tensors if n not in mine]
    if unknown:
        raise ValueError(f"{where} hold {brief(unknown[0])}, which this model lacks; {nearest(unknown[0], mine)}")
    if missing:
        raise ValueError(f"{where} lack {listed(missing)}, which this model has")
    for name, tensor in mine.items():
        if tensor.shape != tuple(tensors[name].shape):
            given, wanted = tuple(tensors[name].shape), tuple(tensor.shape)
            raise ValueError(f"{where} hold {name} of shape {given}; this model's is {wanted}")
    for name, tensor in mine.items():
        tensor.copy_(loaded(tensors[name]))


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as `<parameter>/<state>`, for example `decoder.norm.weight/exp_avg`."""
    return {
        f"{name}/{key}": value.detach()
        for name, parameter in _named(optimizer)
        for key, value in optimizer.state.get(parameter, {}).items()
    }


@torch.no_grad()
def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Parts, where: str = "the optimizer's state") -> None:
    """Copy the state that `optimizer_tensors` named into the optimizer's own.

    Raises ValueError if it fits other weights, or another kind of state, before anything is changed.
    """
    if not isinstance(optimizer, Eager):
        _load_unmade(optimizer, tensors, where)
        return
    mine = optimizer_tensors(optimizer)
    for path, tensor in tensors.items():
        if path not in mine or tuple(tensor.shape) != mine[path].shape:
            problem = f"{where} hold {brief(path)} of shape {tuple(tensor.shape)}"
            raise ValueError(f"{problem}, which doesn't fit: {_kept(mine, path.rpartition('/')[0])}")
    missing = [path for path in mine if path not in tensors]
    if missing:
        raise ValueError(f"{where} lack {listed(missing)}, which this optimizer keeps")
    for path, tensor in mine.items():
        tensor.copy_(loaded(tensors[path]))


def _kept(mine: Tensors, name: str) -> str:
    kept = {path.rpartition("/")[2]: tuple(t.shape) for path, t in mine.items() if path.rpartition("/")[0] == name}
    if not kept:
        return f"this optimizer keeps nothing of {brief(name)}, which is not in this model or does not train"
    return f"of {brief(name)} this optimizer keeps {', '.join(f'{key} {shape}' for key, shape in kept.items())}"


def _load_unmade(optimizer: torch.optim.Optimizer, tensors: Parts, where: str) -> None:
    """The same for an optimizer that makes its state at its first step, so only weights can be compared."""
    names = {name: i for i, (name, _) in enumerate(_named(optimizer))}
    shapes = {name: parameter.shape for name, parameter in _named(optimizer)}
    states: dict[int, dict[str, Tensor]] = {}
    for path, tensor in tensors.items():
        name, _, key = path.rpartition("/")
        if name not in names or torch.Size(tensor.shape) not in (shapes[name], torch.Size(())):
            raise ValueError(f"{where} hold {brief(path)} of shape {tuple(tensor.shape)}, which doesn't fit this model")
        states.setdefault(names[name], {})[key] = loaded(tensor)
    optimizer.load_state_dict({**optimizer.state_dict(), "state": states})


def write_tensors(path: Path, tensors: Tensors, metadata: Mapping[str, str] | None = None) -> None:
    """Write one safetensors file. Raises OSError if the disk refuses."""
    on_host = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    try:
        save_file(on_host, path, metadata={"format": "pt", **(metadata or {})})
    except SafetensorError as error:
        raise OSError(f"{path} could not be written: {error}") from None
    if metadata:
        checksums.order(path)  # equal tensors make equal files
    path.chmod(0o666 & ~_umask())  # the library makes its files private, unlike everything else in a run


def _umask() -> int:
    """The process's mask for new files, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def replace_tensors(path: Path, tensors: Tensors) -> None:
    """Atomically write a safetensors file with checksums. Equal tensors give identical files."""
    later = [
        Later(name, t.dtype, tuple(t.shape), partial(tensors.__getitem__, name)) for name, t in sorted(tensors.items())
    ]
    stream_tensors(path, later)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read one safetensors file. Raises ValueError that names it if it is anything else, a pickle for instance, or a
    checksum in it is not its tensor's."""
    try:
        with safe_open(path, "pt") as file:
            known = checksums.read(file.metadata(), str(path))
        tensors = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a sound safetensors file: {error}") from None
    for name, tensor in tensors.items():
        checksums.check(name, tensor, known, str(path))
    return tensors


def learned(model: nn.Module, tensors: Tensors) -> list[Tensor]:
    """Return the tensors that are parameters of a model. Buffers are left out: a mask may contain infinities."""
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return [tensor for name, tensor in tensors.items() if name in names]


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether no tensor holds a NaN or an infinity, of distributed ones in this rank's part; asks the device once."""
    found = [torch.isfinite(local(t)).all() for t in tensors if t.is_floating_point()]
    return not found or bool(torch.stack(found).all())


def _named(optimizer: torch.optim.Optimizer) -> list[tuple[str, nn.Parameter]]:
    return [
        pair for group in optimizer.param_groups for pair in zip(group["param_names"], group["params"], strict=True)
    ]


def listed(names: list[str]) -> str:
    """The first three names in quotation marks, and how many more there are."""
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
