"""LoRA adapters in the format of the Hub's `peft` library: `adapter_config.json` and `adapter_model.safetensors`.

A family's table of names says which of their modules each of our layers is, or is a part of. If they keep several of
ours in one (fused queries, keys and values), our adapters become one of the ranks' sum: the A's stand behind one
another, the B's in blocks, and the product is the same. Theirs on such a module becomes one for each of our layers,
with the same A and that layer's rows of B. Both are exact.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import regex
import torch
from torch import Tensor, nn

from ...core import expressions
from ...core.spec import brief, nearest
from ...nn.layers.linear import Linear
from ...nn.layers.lora import AdapterSize, LoRA, LoRALinear, layers
from .names import Names, StoredPlace, listed

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."

# Keys of the configuration that change no output once the tensors are there, whatever they hold.
# fmt: off
_BESIDE = frozenset(
    {
        "peft_type", "task_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "rank_pattern", "alpha_pattern",
        "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "fan_in_fan_out",
        "base_model_name_or_path", "revision", "inference_mode", "auto_mapping", "peft_version", "megatron_core",
        "runtime_config", "ensure_weight_tying", "loftq_config", "megatron_config", "init_lora_weights",
        "qalora_group_size",  # a setting of `use_qalora`, which is refused
    }
)
# fmt: on
_MERGED = frozenset({"ADALORA", "BOFT", "HRA", "IA3", "LOHA", "LOKR", "OFT", "VERA"})  # PEFT merges these into weights
_EXPERTS = {"qwen3_moe": ("gate", "gate_proj", "up_proj", "down_proj")}  # by model type, what PEFT 0.21 renames
_CHANGING = ("pissa", "olora", "corda", "loftq", "lora_ga")  # ways to begin that change the base's weights too


@dataclass(frozen=True)
class PEFTModule:
    """One of their modules: its name, the layers of ours that it holds, and how weights move between the two."""

    name: str
    ours: tuple[str, ...]
    entry: StoredPlace

    @property
    def turned(self) -> bool:
        """Whether their weight is transposed, (d_in, d_out)."""
        rows, columns = self.entry.shapes[0][1] + 1, sum(shape[0] for shape in self.entry.shapes)
        return self.entry.how.shapes([(shape[0], rows) for shape in self.entry.shapes])[0] != (columns, rows)

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Rows of ours (d_out of each, n) as rows of theirs."""
        (rows,) = self.entry.how.to_theirs(list(parts))
        return rows.mT if self.turned else rows

    def split(self, rows: Tensor) -> list[Tensor]:
        """Rows of theirs as rows of each of ours."""
        shapes = [(shape[0], rows.shape[1]) for shape in self.entry.shapes]
        return self.entry.how.to_ours([rows.mT if self.turned else rows], shapes)


def parts(model: nn.Module, names: Names, renamed: Mapping[str, str]) -> dict[str, PEFTModule]:
    """Their modules that consist of linear layers of ours, by name. `renamed` are regular expressions in the names of files,
    and what stands there in the names of modules."""
    linear = {name for name, module in model.named_modules() if isinstance(module, Linear)}
    modules = {}
    for written in names.written():
        for entry in written.split():
            ours = tuple(name.rpartition(".")[0] for name in entry.ours)
            matrices = all(name.endswith(".weight") for name in (*entry.ours, *entry.theirs)) and linear.issuperset(
                ours
            )
            if matrices and len(entry.theirs) == 1:
                name = entry.theirs[0].removesuffix(".weight")
                for pattern, other in renamed.items():
                    name = regex.sub(pattern, other, name)
                modules[name] = PEFTModule(name, ours, entry)
    return modules


# -- ours into theirs -----------------------------------------------------------------------------------------------


@torch.no_grad()
def to_theirs(
    model: nn.Module, known: Mapping[str, PEFTModule], base: str = "", task: str | None = None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and the tensors of a model's adapter. `known` are the `parts` of the model.

    Raises ValueError if the model has no adapter, or one with parameters that are none of a LoRA.
    """
    spec, ours = getattr(model, "adapter", None), layers(model)
    if not isinstance(spec, LoRA):
        raise ValueError("this model has no LoRA adapter; `qkv.adapt(model, qkv.LoRA())` gives it one")
    if spec.train:
        raise ValueError(
            f"the adapter also trains {', '.join(spec.train)}, which qkv doesn't write in PEFT's format; save the "
            "whole model, whose weights hold all of it"
        )
    tensors: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    scales: dict[str, float] = {}
    turned: set[bool] = set()
    for part in known.values():
        adapted = [ours.pop(name, None) for name in part.ours]
        if not any(adapted):
            continue
        a, b, scale = _one(part, adapted)
        tensors[f"{PREFIX}{part.name}.lora_A.weight"] = a.contiguous()
        tensors[f"{PREFIX}{part.name}.lora_B.weight"] = b.contiguous()
        ranks[part.name], scales[part.name] = len(a), scale
        turned.add(part.turned)
    if ours:
        raise ValueError(
            f"qkv has no PEFT name for the adapter of {brief(next(iter(ours)))} in this family; save the whole model"
        )
    return _config(spec, ranks, scales, turned, base, task), tensors


def check_kept(model_type: str, modules: Sequence[str]) -> None:
    """Raise ValueError if PEFT would leave out modules of an adapter: it takes them for experts', which have other names in
    transformers 5."""
    lost = [name for name in modules if name.rpartition(".")[2] in _EXPERTS.get(model_type, ())]
    if lost:
        raise ValueError(
            f"PEFT takes {listed(lost)} of {model_type} for experts and leaves them out; adapt other layers, as in "
            "layers='*.attention.*', or save the whole model"
        )


def _one(part: PEFTModule, adapted: Sequence[LoRALinear | None]) -> tuple[Tensor, Tensor, float]:
    """A, B and s of their module, from our layers in it; None is a layer without an adapter."""
    there = [layer for layer in adapted if layer is not None]
    scale = there[0].scale
    shared = all(torch.equal(layer.lora_a, there[0].lora_a) for layer in there)
    a = there[0].lora_a if shared else torch.cat([layer.lora_a for layer in there])
    rows, at = [], 0
    for layer, shape in zip(adapted, part.entry.shapes, strict=True):
        b = a.new_zeros(shape[0], len(a))
        if layer is not None:
            b[:, at : at + layer.rank] = layer.lora_b * (layer.scale / scale)
            at += 0 if shared else layer.rank
        rows.append(b)
    return a.detach(), part.joined(rows), scale


def _config(
    spec: LoRA, ranks: Mapping[str, int], scales: Mapping[str, float], turned: set[bool], base: str, task: str | None
) -> dict[str, Any]:
    def alpha(name: str) -> float:
        return scales[name] * (math.sqrt(ranks[name]) if spec.rank_stabilized else ranks[name])

    own = [name for name in ranks if not math.isclose(alpha(name), spec.alpha)]
    return {
        "peft_type": "LORA",
        "task_type": task,
        "base_model_name_or_path": base,
        "inference_mode": True,
        "r": spec.rank,
        "lora_alpha": spec.alpha,
        "lora_dropout": spec.dropout,
        "use_rslora": spec.rank_stabilized,
        "bias": "none",
        "target_modules": list(ranks),
        "fan_in_fan_out": turned == {True},
        "rank_pattern": {name: rank for name, rank in ranks.items() if rank != spec.rank},
        "alpha_pattern": {name: alpha(name) for name in own},
        "modules_to_save": None,
    }


# -- theirs into ours -----------------------------------------------------------------------------------------------


def read_config(config: object) -> LoRA:
    """The spec that an `adapter_config.json` describes. Raises ValueError naming what it asks for and is not here."""
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        kind = config.get("peft_type") if isinstance(config, dict) else config
        merged = ": merge it with peft" if isinstance(kind, str) and kind in _MERGED else ""
        raise ValueError(f"it is an adapter of the type {brief(kind)}, and only 'LORA' is known here{merged}")
    start = str(config.get("init_lora_weights") or "")
    if start.lower().startswith(_CHANGING):
        raise ValueError(
            f"it began as {brief(start)}, which changes the weights of the model it belongs to: merge it with peft"
        )
    for key, value in config.items():
        if key not in _BESIDE and value not in (None, False, "none", [], {}):
            raise ValueError(f"it sets {brief(key)} to {str(value)[:60]}, which is not known here: merge it with peft")
    return LoRA(
        rank=config.get("r", 8),
        alpha=config.get("lora_alpha", 8),
        dropout=config.get("lora_dropout", 0.0),
        rank_stabilized=bool(config.get("use_rslora", False)),
    )


def sizes(
    known: Mapping[str, PEFTModule], config: Mapping[str, Any], spec: LoRA, tensors: Mapping[str, Tensor]
) -> dict[str, tuple[AdapterSize, Tensor, Tensor]]:
    """For each layer of ours its size, A and B, of the `known` modules that the configuration targets.

    Warns of tensors of other modules, which PEFT leaves out too, and of targets without tensors. Raises ValueError naming a
    tensor that has no place in the model.
    """
    targeted = targets(config)
    adapted: dict[str, tuple[AdapterSize, Tensor, Tensor]] = {}
    spare, beside, without = set(tensors), [], []
    for name, part in known.items():
        a, b = (tensors.get(f"{PREFIX}{name}.lora_{which}.weight") for which in "AB")
        if a is None or b is None:
            without += [name] if a is None and b is None and config.get("target_modules") and targeted(name) else []
            continue
        spare -= {f"{PREFIX}{name}.lora_{which}.weight" for which in "AB"}
        if not targeted(name):
            beside.append(name)
            continue
        d_in, d_out = part.entry.shapes[0][1], sum(shape[0] for shape in part.entry.shapes)
        if a.ndim != 2 or a.shape[1] != d_in or tuple(b.shape) != (d_out, len(a)):
            raise ValueError(
                f"the adapter of {name} is {tuple(b.shape)} · {tuple(a.shape)}, and the layer is {(d_out, d_in)}"
            )
        rank = int(pattern_of(config, "rank_pattern", name) or spec.rank)
        if rank != len(a):
            raise ValueError(f"the adapter of {name} has rank {len(a)}, and its configuration says {rank}")
        size = AdapterSize(rank, spec.scale(rank, pattern_of(config, "alpha_pattern", name)))
        adapted |= {ours: (size, a, rows) for ours, rows in zip(part.ours, part.split(b), strict=True)}
    if spare:
        first = min(spare)
        if whole := sorted(name for name in spare if ".lora_" not in name):
            raise ValueError(
                f"{brief(whole[0])} is a whole matrix, which PEFT stores beside an adapter if the adapter covers a table or "
                "the vocabulary was resized: merge it with peft"
            )
        raise ValueError(f"{brief(first)} belongs to no linear layer of this model; {nearest(_module(first), known)}")
    if not adapted:
        raise ValueError("its configuration targets no linear layer for which it has tensors")
    _tell(beside, without)
    return adapted


def _tell(beside: list[str], without: list[str]) -> None:
    if beside:
        warnings.warn(
            f"the adapter's configuration does not target {listed(beside)}, so their tensors are left out, as in PEFT",
            stacklevel=4,
        )
    if without:
        warnings.warn(
            f"the adapter's configuration targets {listed(without)}, for which it has no tensors; they stay as they are",
            stacklevel=4,
        )


def _module(name: str) -> str:
    return name.removeprefix(PREFIX).partition(".lora_")[0]


# -- PEFT's rules of which modules a configuration means (peft.tuners.tuners_utils, peft.utils.other) -----------------


def targets(config: Mapping[str, Any]) -> Callable[[str], bool]:
    """Whether a configuration adapts the module of a name: by `target_modules`, `exclude_modules`, `layers_to_transform` and
    `layers_pattern`.

    A text is a regular expression for the whole name; a list has names or their ends after a dot. `layers_to_transform` are
    the layers that ends in a list mean: the first number in the name after a dot, or after a `layers_pattern`.
    """
    wanted, excluded = (_modules(config, key) for key in ("target_modules", "exclude_modules"))
    layers, lists = _layers(config), _patterns(config, "layers_pattern")

    def in_layers(name: str) -> bool:
        places = [rf"(?:^|.*?\.){pattern}\.(?P<layer>\d+)\." for pattern in lists] or [r".*?\.[^.]*\.(?P<layer>\d+)\."]
        found = next((match for place in places if (match := _match("layers_pattern", place, name))), None)
        return found is not None and int(found["layer"]) in layers

    def targeted(name: str) -> bool:
        if excluded and _means("exclude_modules", excluded, name):
            return False
        if not wanted or (isinstance(wanted, str) and wanted.lower() == "all-linear"):
            return True
        if not layers or isinstance(wanted, str) or name in wanted:
            return _means("target_modules", wanted, name)
        return _means("target_modules", wanted, name) and in_layers(name)

    return targeted


def pattern_of(config: Mapping[str, Any], key: str, name: str) -> float | None:
    """What `rank_pattern` or `alpha_pattern` gives a module: the value of the first regular expression that matches its
    name, or the end of its name after a dot."""
    patterns = config.get(key) or {}
    if not isinstance(patterns, Mapping) or not all(_is_number(value) and value > 0 for value in patterns.values()):
        raise ValueError(f"{key} is an object of positive numbers by names of modules, not {brief(patterns)}")
    return next((value for one, value in patterns.items() if _match(key, rf"(.*\.)?({one})$", name)), None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _means(key: str, modules: str | list[str], name: str) -> bool:
    if isinstance(modules, str):
        return _match(key, rf"(?:{modules})\Z", name) is not None
    return name in modules or any(name.endswith(f".{end}") for end in modules)


def _match(key: str, pattern: str, name: str) -> regex.Match[str] | None:
    try:
        return expressions.match(pattern, name)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def _modules(config: Mapping[str, Any], key: str) -> str | list[str]:
    value = config.get(key) or []
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{key} is a list of names or one regular expression, not {brief(value)}")
    return value


def _layers(config: Mapping[str, Any]) -> set[int]:
    value = config.get("layers_to_transform")
    layers = [] if value is None else [value] if isinstance(value, int) else value
    if not isinstance(layers, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in layers):
        raise ValueError(f"layers_to_transform is a layer's number or a list of numbers, not {brief(value)}")
    return set(layers)


def _patterns(config: Mapping[str, Any], key: str) -> list[str]:
    value = _modules(config, key)
    return [value] if isinstance(value, str) else value
