"""The sizes of a preset (`d_model`, `n_layers` …): their defaults, and the check of given values."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping
from typing import Any

from ...core.spec import Spec, brief
from ...io import families
from ...nn.cost.images import patches_of
from ...nn.layers.frames import Frames
from ...nn.layers.waveform import Waveform
from ...nn.models.joint import Joint
from ...nn.models.transformer import Transformer

MOST_LAYERS, LARGEST = 4096, 2**31 - 1


def sizes_of(preset: str) -> dict[str, Any]:
    """The arguments of a preset's function, with the preset's values or the function's defaults."""
    factory, named = families.presets()[preset]
    sizes = {name: parameter.default for name, parameter in inspect.signature(factory).parameters.items()} | named
    return {name: _plain(size) for name, size in sizes.items()}


def recipe_of_preset(name: str) -> str | None:
    """A clause that names a recipe which trains a preset; None if qkv has no such preset."""
    if name not in families.PRESETS:
        return None
    spec = families.preset(name)
    pairs, decodes = spec.is_encoder_decoder, not isinstance(spec, Transformer) or spec.decoder is not None
    if isinstance(patches_of(spec), Frames | Waveform):
        recipe = "recognize" if pairs else "recognize-ctc"
    elif name.startswith("electra"):
        recipe = "electra"
    elif any(isinstance(stack.embedding, Joint) for _, stack in spec.stacks()):
        recipe = "see"
    elif patches_of(spec) is not None:
        recipe = "caption" if pairs else "vit"
    else:
        recipe = "translate" if pairs else "lm" if decodes else "classify"
    return f"{name} is a preset, a model without data, which a recipe trains: `qkv train {recipe} model.preset={name}`"


_OF_THE_DATA = ("vocab_size", "source_vocab_size", "channels", "labels", "head", "pooler", "classifier", "answers")


def names_an_architecture(preset: str) -> bool:
    """Whether a preset has the name of its function, such as `llama`; `llama-2-7b` names a published model's sizes too."""
    if preset not in families.PRESETS:
        return True
    factory, _ = families.PRESETS[preset]
    return getattr(factory, "__name__", "") == preset.replace("-", "_")


def kept_sizes(preset: str, recipe_sizes: Mapping[str, Any]) -> set[str]:
    """Which of a recipe's sizes stay if a setting names a preset. An architecture takes all that it has. A published
    model takes only what depends on the data and the task, and dropout if it sets none."""
    own = sizes_of(preset)
    if names_an_architecture(preset):
        return {name for name in recipe_sizes if name in own}
    _, named = families.presets()[preset]
    return {
        name
        for name in recipe_sizes
        if name in own and (name in _OF_THE_DATA or ("drop" in name and name not in named))
    }


_SHAPES = ("d_model", "n_layers", "n_heads", "n_kv_heads", "d_head", "d_ff")


def preset_note(preset: str, kept: Mapping[str, Any], dropped: Mapping[str, Any]) -> str:
    """A note on the recipe's sizes that a named preset does not take, and on sizes that an architecture sets beside
    them; "" if there are none."""
    own = sizes_of(preset)
    differ = {name: value for name, value in dropped.items() if name not in own or _plain(own[name]) != value}
    replaced = [f"{name}={_short(value)}" for name, value in differ.items() if name in own]
    unknown = [name for name in differ if name not in own]
    parts = []
    if replaced:
        parts.append(
            f"takes its own sizes in place of the recipe's {', '.join(replaced)} (to keep one, give it beside the preset: "
            f"model.{replaced[0]})"
        )
    if unknown:
        parts.append(f"has no {', '.join(unknown)}, which the recipe sets")
    beside = [f"{name}={own[name]}" for name in _SHAPES if isinstance(own.get(name), int) and name not in kept]
    if beside and names_an_architecture(preset) and kept.keys() & set(_SHAPES):
        parts.append(f"sets {', '.join(beside)} beside the recipe's sizes (give model.{beside[0].partition('=')[0]}=…)")
    return f"model.preset={preset} {' and '.join(parts)}" if parts else ""


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("kind", "{…}"))
    return json.dumps(value) if isinstance(value, bool | None | list | tuple) else str(value)


def _plain(size: Any) -> Any:
    """The value as YAML has it."""
    return size.to_dict() if isinstance(size, Spec) else list(size) if isinstance(size, tuple) else size


def check_sizes(preset: str, sizes: Mapping[str, Any]) -> None:
    """Raise ValueError if a size has another library's name, or a value of the wrong type or range."""
    presets = families.presets()
    if preset not in presets:
        return
    taken = inspect.signature(presets[preset][0]).parameters
    for name, value in sizes.items():
        if name in taken:
            _check(name, value, taken[name])
            continue
        from ...core.synonyms import elsewhere

        if (here := elsewhere(name, within="model", own=False)) is not None:
            raise ValueError(f"there is no 'model.{name}'; {here}")


def _check(name: str, value: Any, parameter: inspect.Parameter) -> None:
    """Check a value against the annotation of its parameter, such as `int | None`. A stack has a layer at least, unless
    there is none by default."""
    types = set(str(parameter.annotation).split(" | "))
    if value is None and ("None" in types or name == "max_positions"):
        return
    whole = isinstance(value, int) and not isinstance(value, bool)
    least, most = (1, MOST_LAYERS) if name.endswith("layers") else (0, LARGEST)
    least = 0 if parameter.default == 0 else least
    if types <= {"int", "None"} and not (whole and least <= value <= most):
        raise ValueError(f"model.{name} is a whole number from {least} to {most:,}, not {brief(value)}")
    if types == {"bool"} and not isinstance(value, bool):
        raise ValueError(f"model.{name} is true or false, not {brief(value)}")
    if types <= {"float", "None"} and not ((whole or isinstance(value, float)) and math.isfinite(value)):
        raise ValueError(f"model.{name} is a number, not {brief(value)}")
