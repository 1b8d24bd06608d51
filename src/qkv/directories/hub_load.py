"""Load a model from a directory in the Hub's format, by the tables of its family."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from ..core.spec import nearest
from ..families import FAMILIES
from ..hub import generation as generation_file
from ..hub.family import Family, difference
from ..hub.files import Weights, open_weights
from ..hub.generation import Ids
from ..hub.keys import Config
from ..hub.names import Names, Reading
from ..hub.values import Maybe, Object, Word, shown
from ..hub.weights import check_depth, equal_copies, place
from ..models.transformer import Transformer
from .build import Model, build
from .layout import CONFIG, GENERATION, read_json
from .origin import Origin

T = TypeVar("T")


def family(config: Mapping[str, Any], where: Path) -> Family:
    """The family of a configuration. Raises ValueError naming the model type where there is none."""
    model_type = config.get("model_type")
    Maybe(Word()).check(model_type, f"{where}: model_type")
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    if config.get("auto_map"):
        raise ValueError(
            f"{where}: the model type {shown(model_type)} comes with code of its own (trust_remote_code), which "
            "qkv never runs"
        )
    if model_type is None:
        raise ValueError(f"{where} says no model_type, so there is no telling what it is; {nearest('', FAMILIES)}")
    near = nearest(model_type[:80], FAMILIES)
    raise ValueError(f"{where}: there is no model type {shown(model_type)} here; {near}")


def load(
    folder: Path, device: torch.device, dtype: torch.dtype | None = None, allow_pickle: bool = False
) -> tuple[Model, Origin, dict[str, Any]]:
    """The model in a Hub directory, what else the directory says, and its settings as fields of `Generation`.

    Raises ValueError in one sentence where a key, a class or a tensor is not known, missing or of a wrong shape; all of
    that is found before anything is allocated.
    """
    config = _config(folder)
    found = family(config, folder / CONFIG)
    weights = open_weights(folder, allow_pickle)
    model, names = _fitting(found, config, weights, folder)
    said, fields, ids = _generation(folder, config, found, model.spec.vocab_size or None)
    place(model, names, weights, where=str(folder), device=device, dtype=dtype)
    return model.eval(), Origin(config, said, ids), fields


def _generation(
    folder: Path, config: Config, found: Family, vocab_size: int | None
) -> tuple[Config | None, dict[str, Any], Ids]:
    """What `generation_config.json` says, or, without one, the configuration: as it is, as our fields, and the ids."""
    path = folder / GENERATION
    said = read_json(path) if path.is_file() else None
    if said is not None and not isinstance(said, dict):
        raise ValueError(f"{path} is not a JSON object")
    config = _known(config, folder / CONFIG, vocab_size)
    settings = config if said is None else _known(said, path, vocab_size)
    try:
        return said, *generation_file.read(settings, config, found.is_encoder_decoder, vocab_size)
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG if said is None else path}: {error}") from None


def _known(said: Config, path: Path, vocab_size: int | None) -> Config:
    """What a file says, without tokens that the model does not have, each told in a warning."""
    if vocab_size is None:
        return said
    kept, unknown = generation_file.without_unknown(said, vocab_size)
    for key, value in unknown.items():
        warnings.warn(
            f"{path}: {key} is {shown(value)}, outside the model's vocabulary of {vocab_size:,} tokens; it is ignored",
            stacklevel=2,
        )
    return kept


def spec(folder: Path) -> Transformer:
    """The spec of the model in a directory of the Hub, by its configuration and the headers of its weights."""
    config = _config(folder)
    model, _ = _fitting(family(config, folder / CONFIG), config, open_weights(folder, False), folder)
    return model.spec


def _config(folder: Path) -> dict[str, Any]:
    config = read_json(folder / CONFIG)
    if not isinstance(config, dict):
        raise ValueError(f"{folder / CONFIG} is not a JSON object")
    return config


def _fitting(found: Family, config: Mapping[str, Any], weights: Weights, folder: Path) -> tuple[Model, Names]:
    """The model on the meta device, of the class that the weights fit: the one that the configuration names, else
    another of its family, since checkpoints may hold more heads than the class they name, or lack a pooler. Names may lack
    the prefix, and a head that a configuration calls tied may have numbers of its own, which then count.
    """
    refusal: ValueError | None = None
    check_depth(next(_candidates(found, config, folder))[0], weights, str(folder))
    for spec, bare in _candidates(found, config, folder):
        try:
            model, names, reading = _on_meta(found, spec, bare, weights, folder)
            if all(equal_copies(entry, reading, weights) for entry in reading.again):
                return model, names
            model, names, _ = _on_meta(found, spec.replace({"head.tied": False}), bare, weights, folder)
            return model, names
        except ValueError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _candidates(found: Family, config: Mapping[str, Any], folder: Path) -> Iterator[tuple[Transformer, bool]]:
    """What the model may be, and whether its tensors' names lack the prefix; the class that is named comes first."""
    named = _told(folder, found, lambda: found.class_of(config))
    for cls in (named, *(name for name in found.classes if name != named)):
        bare = found.classes[cls].bare
        for variant in range(len(found.classes[cls].variants)):
            spec = _told(folder, found, lambda a=cls, b=variant: _spec(found, config, a, b))  # type: ignore[misc]
            yield spec, bare
            yield spec, not bare


def _on_meta(
    found: Family, spec: Transformer, bare: bool, weights: Weights, folder: Path
) -> tuple[Model, Names, Reading]:
    """A model of the spec without memory, and how to read it. Raises ValueError where the weights don't fit it."""
    model = build(spec, device="meta")
    names = Names.of(found.table(spec, bare), model)
    return model, names, names.read(weights.shapes, str(folder))


def _told(folder: Path, found: Family, make: Callable[[], T]) -> T:
    """What `make` gives; its ValueErrors name the configuration and the family."""
    try:
        return make()
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}, of model type {found.model_type!r}: {error}") from None


def _spec(found: Family, config: Mapping[str, Any], cls: str, variant: int) -> Transformer:
    """The spec by the family's keys, or the one that qkv wrote beside them where it says the same and more."""
    spec = found.spec(config, cls, variant)
    Maybe(Object()).check(config.get("qkv"), "qkv")
    own = (config.get("qkv") or {}).get("spec")
    Maybe(Object()).check(own, "qkv.spec")
    if own is None:
        return spec
    try:
        more = Transformer.from_dict(own)
    except ValueError as error:
        raise ValueError(f"qkv.spec: {error}") from None
    return spec if difference(spec, more) else more
