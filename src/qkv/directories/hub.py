"""Directories in the Hub's format: a model by its family's tables, and a directory that `transformers` loads."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from ..core.spec import SCHEMA, nearest
from ..families import FAMILIES, family_of
from ..generation import Generation
from ..hub import generation as generation_file
from ..hub.family import Family, difference
from ..hub.files import Weights, open_weights
from ..hub.generation import Ids
from ..hub.keys import Config
from ..hub.names import Names, Reading
from ..hub.values import Maybe, Object, Word, shown
from ..hub.weights import check_depth, equal_copies, place
from ..models.transformer import Transformer, TransformerModel
from . import sharded
from .build import Model, build
from .layout import CONFIG, GENERATION, read_json, write_json

T = TypeVar("T")

MODEL_TYPE = "qkv"  # of what only qkv knows


@dataclass(frozen=True)
class Origin:
    """What a directory of the Hub said besides its model, kept so that saving says it again.

    config, generation: the content of its `config.json` and `generation_config.json`.
    ids:                which tokens have roles in generation.
    """

    config: Mapping[str, Any]
    generation: Mapping[str, Any] | None = None
    ids: Ids = field(default_factory=Ids)

    @property
    def own(self) -> Mapping[str, Any]:
        """What qkv wrote into the configuration, where it made the model: its task, and what the Hub has no key for."""
        own = self.config.get("qkv")
        return own if isinstance(own, Mapping) else {}


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
    """The model in a directory of the Hub, what else the directory said, and its settings as fields of `Generation`.

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


def config_of(spec: Transformer, dtype: torch.dtype, origin: Origin | None = None) -> dict[str, Any]:
    """The Hub's `config.json` for a spec; key for key the origin's where the model is still the same.

    What the Hub's keys can't say (how parameters began, dropout where the family has none, our task) stands under "qkv".
    Raises ValueError where no family can say the spec.
    """
    origin = origin or Origin({})
    before = dict(origin.config)
    found = family_of(spec, before.get("model_type"))
    made = found.config(spec)
    cls = made["architectures"][0]
    variant = found.variant(spec, cls)
    if before.get("model_type") == found.model_type and not difference(found.spec(before, cls, variant), spec):
        made = before | {"architectures": [cls]}
    elif before.get("model_type") in (None, found.model_type):
        kept = {key: value for key, value in before.items() if key not in {*found.claimed, *found.labels.keys}}
        made = kept | found.labels.named(made, before)
    key = "torch_dtype" if "torch_dtype" in made else "dtype"
    if "model_type" not in before or made.get(key) is not None:
        made[key] = str(dtype).removeprefix("torch.")
    own = {key: value for key, value in origin.own.items() if key != "spec"}
    if difference(found.spec(made, cls, variant), spec, beside=frozenset()):
        own["spec"] = {"schema": SCHEMA, **spec.to_dict()}
    made.pop("qkv", None)
    return made | ({"qkv": own} if own else {})


def names_of(model: TransformerModel, config: Mapping[str, Any]) -> Names:
    """The names of a model's tensors in the class that a configuration names."""
    found = FAMILIES[config["model_type"]]
    return Names.of(found.table(model.spec, found.classes[config["architectures"][0]].bare), model)


def _state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


def save(
    folder: Path,
    model: TransformerModel,
    settings: Mapping[str, Any],
    origin: Origin,
    max_shard_size: int | str = sharded.MAX_SHARD_SIZE,
) -> None:
    """Write the weights, tied ones once, `generation_config.json` of what generates and, last, `config.json`, each whole or
    not at all.

    `settings` are the fields of a `Generation`. Raises ValueError, before anything is written, where no family of the
    Hub is this model.
    """
    config = config_of(model.spec, model.dtype, origin)
    sharded.write(folder, names_of(model, config), _state(model), max_shard_size)
    judges = model.head is not None and model.head.takes_layout  # whole sequences, so that it generates none
    if model.decoder is not None and not judges:
        samples = Generation.from_dict(settings).samples
        write_json(folder / GENERATION, generation_file.write(settings, origin.generation or {}, config, samples))
    write_json(folder / CONFIG, config)
