"""Load a model from a directory in the Hub's format, by the tables of its family."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from ...core.spec import brief, nearest
from ...data.tokenizers.tokenizer import Tokenizer
from ...nn.models.base import ModelSpec
from ...nn.quantization.scheme import Scheme
from ..families import FAMILIES
from ..hub import huggingface
from ..hub.family import Family, difference
from ..hub.files import WeightFiles, open_weights
from ..hub.names import Names, Reading, StoredPlace, listed
from ..hub.quantized import QuantizedWeights, by_rows, layout_of, quantization_of
from ..hub.values import Maybe, ObjectKind, StringKind
from ..hub.weights import StoredValues, check_depth, other_copies, place, values_of
from .build import Model, build
from .layout import CONFIG, GENERATION, MODULES, read_json
from .locate import has_tokenizer
from .origin import Origin, without_sentence_vector

T = TypeVar("T")
ROUNDED = 5e-3  # how far numbers up to 1 move in bf16


def read_family(config: Mapping[str, Any], where: Path) -> Family[Any]:
    """The family of a configuration. Raises ValueError naming the model type if there is none."""
    model_type = config.get("model_type")
    Maybe(StringKind()).check(model_type, f"{where}: model_type")
    if isinstance(model_type, str) and model_type in FAMILIES:
        return FAMILIES[model_type]
    if config.get("auto_map"):
        raise ValueError(
            f"{where}: the model type {brief(model_type)} comes with its own code (trust_remote_code), which "
            "qkv never runs"
        )
    if model_type is None:
        raise ValueError(f"{where} says no model_type, so there is no telling what it is; {nearest('', FAMILIES)}")
    near = nearest(model_type[:80], FAMILIES)
    raise ValueError(f"{where}: there is no model type {brief(model_type)} here; {near}")


@dataclass(frozen=True)
class Checked:
    """A Hub directory in which everything is known to fit, before any weight is allocated.

    model:  on the meta device; names: of its tensors in `weights`.
    origin: what else the directory says.
    """

    folder: Path
    model: Model
    names: Names
    weights: WeightFiles
    origin: Origin

    def load(self, device: torch.device, dtype: torch.dtype | None = None, scheme: Scheme | None = None) -> Model:
        """The model with its weights. Mostly copies numbers, so other threads can run Python meanwhile."""
        place(
            self.model,
            self.names,
            self.weights,
            where=str(self.folder),
            device=device,
            dtype=dtype,
            scheme=scheme,
            beside=True,
        )
        return self.model.eval()

    def tokenizer(self) -> Tokenizer | None:
        """Load the tokenizer, if there is one, without added tokens that the model has no embedding for. Such tokens are
        common: people add a padding token to the tokenizer and don't resize the model."""
        if not has_tokenizer(self.folder):
            return None
        words, size = Tokenizer.load(self.folder), self.model.spec.vocab_size
        added = words.raw.get_added_tokens_decoder()
        beyond = [added[i].content for i in sorted(added) if i >= size]
        if not beyond:
            return words
        _warn(
            self.folder,
            f"the model has no embedding for {listed(beyond)}, which the tokenizer has added; "
            f"{'it is' if len(beyond) == 1 else 'they are'} left out",
        )
        return words.within(size)

    def outline(self, device: torch.device, dtype: torch.dtype) -> tuple[Model, StoredValues]:
        """The model with its parameters on the meta device, and their values, which are read one at a time."""
        where = str(self.folder)
        values = values_of(self.model, self.names, self.weights, where=where, device=device, dtype=dtype, beside=True)
        return self.model.eval(), values


def check(folder: Path, allow_pickle: bool = False) -> Checked:
    """Read what a Hub directory says, and check that it fits together.

    Raises ValueError in one sentence if a key, a class or a tensor is not known, missing or of a wrong shape.
    """
    config = _config(folder)
    family = _family(config, folder)
    weights = _opened(folder, config, allow_pickle)
    fit = _fitting(family, config, weights, folder)
    model = fit.model
    carried = _carried(family, fit, weights)
    model.origin = replace(origin(folder, model.spec), carried=carried, repository=huggingface.cached_as(folder))
    return Checked(folder, model, fit.names, weights, model.origin)


def origin(folder: Path, spec: ModelSpec) -> Origin:
    """What a directory says besides its weights. `spec`: of its model, whose vocabulary has the tokens."""
    path = folder / GENERATION
    content = read_json(path) if path.is_file() else None
    if content is not None and not isinstance(content, dict):
        raise ValueError(f"{path} is not a JSON object")
    return Origin.of(_config(folder), content, spec, folder / CONFIG, path)


def spec(folder: Path) -> ModelSpec:
    """The spec of the model in a directory of the Hub, by its configuration and the headers of its weights."""
    config = _config(folder)
    return _fitting(_family(config, folder), config, _opened(folder, config), folder).model.spec


def _family(config: Mapping[str, Any], folder: Path) -> Family[Any]:
    """The family of a directory. The error for an unknown model type names the family whose tensors are nearest."""
    try:
        return read_family(config, folder / CONFIG)
    except ValueError as error:
        from ..families.nearest_family import advice  # imported here: it compares with every family

        raise ValueError(f"{error}{advice(config, folder)}") from None


def _opened(folder: Path, config: Mapping[str, Any], allow_pickle: bool = False) -> WeightFiles:
    """The weights of a directory; quantized ones as its configuration says."""
    weights, quantization = open_weights(folder, allow_pickle), quantization_of(config, folder)
    if quantization is None:
        return weights
    return QuantizedWeights(weights, layout_of(quantization, str(folder / CONFIG)), str(folder))


def _config(folder: Path) -> dict[str, Any]:
    config = read_json(folder / CONFIG)
    if not isinstance(config, dict):
        raise ValueError(f"{folder / CONFIG} is not a JSON object")
    return config


@dataclass(frozen=True)
class _Fit:
    """A model on the meta device that the weights fit: of which class and variant, whether without the prefix, and what is
    read."""

    cls: str
    variant: int
    bare: bool
    model: Model
    names: Names
    reading: Reading


def _fitting(family: Family[Any], config: Mapping[str, Any], weights: WeightFiles, folder: Path) -> _Fit:
    """The model on the meta device, of the class that the weights fit: the one that the configuration names, or one of its
    family that has more, since checkpoints may hold more heads than the class they name. A pooler may be missing, names may
    lack the prefix, and a head that a configuration calls tied may have its own numbers, which then count.

    Warns of tensors that the class has and the file lacks (MISSING), and of those outside the model (UNEXPECTED).
    Raises ValueError if without the former, or with the latter, it would be another model.
    """
    named = _naming_config(folder, family, lambda: family.class_of(config))
    check_depth(_naming_config(folder, family, lambda: _spec(family, config, named, 0)), weights, str(folder))
    try:
        fit = _first(family, config, weights, folder, [named, *(name for name in family.classes if name != named)])
    except ValueError as refusal:
        try:
            fit = _first(family, config, weights, folder, [named], beside=True)
        except ValueError:
            raise refusal from None
    _check_computed(family, fit, weights, folder)
    _tell(family, config, fit, named, folder)
    return fit


def _first(
    family: Family[Any],
    config: Mapping[str, Any],
    weights: WeightFiles,
    folder: Path,
    classes: list[str],
    beside: bool = False,
) -> _Fit:
    """The first of some classes that the weights fit; `beside` is as in `Names.read`. Raises the ValueError of the first."""
    refusal: ValueError | None = None
    for cls, variant in ((name, i) for name in classes for i in range(len(family.classes[name].variants))):
        spec = _naming_config(folder, family, partial(_spec, family, config, cls, variant))
        for bare in (family.classes[cls].bare, not family.classes[cls].bare):
            try:
                model, names, reading = _on_meta(family, spec, bare, weights, folder, beside)
                if others := other_copies(reading, weights):
                    model, names, reading = _untied(family, spec, bare, weights, folder, others, beside)
                return _Fit(cls, variant, bare, model, names, reading)
            except ValueError as error:
                refusal = refusal or error
    assert refusal is not None
    raise refusal


def _untied(
    family: Family[Any],
    spec: ModelSpec,
    bare: bool,
    weights: WeightFiles,
    folder: Path,
    others: list[StoredPlace],
    beside: bool,
) -> tuple[Model, Names, Reading]:
    """The model with a separate head, if further copies of a tied tensor differ from it.

    Raises ValueError naming one if it isn't a head's.
    """
    try:
        made = _on_meta(family, spec.replace({"head.tied": False}), bare, weights, folder, beside)
        others = other_copies(made[2], weights)
    except ValueError:
        made = None
    if made is None or others:
        raise ValueError(
            f"{folder} holds different numbers in {listed(others[0].theirs)}, which in this model is a copy of another"
            " tensor"
        )
    return made


def _on_meta(
    family: Family[Any], spec: ModelSpec, bare: bool, weights: WeightFiles, folder: Path, beside: bool
) -> tuple[Model, Names, Reading]:
    """A model on the meta device, and how to read its weights. Raises ValueError if the weights don't fit."""
    model = build(spec, device="meta")
    names = by_rows(Names.of(family.table(spec, bare), model), weights)
    return model, names, names.read(weights.shapes, str(folder), beside)


def _check_computed(family: Family[Any], fit: _Fit, weights: WeightFiles, folder: Path) -> None:
    """Raise ValueError if a file holds other numbers than the computed ones: it is another model."""
    for name, tensor in family.computed_tensors(fit.model.spec, fit.bare).items():
        if name in weights.shapes:
            there = weights.read(name).float()
            if there.shape != tensor.shape or not torch.allclose(there, tensor, rtol=0, atol=ROUNDED):
                raise ValueError(
                    f"{folder}: {name} holds other numbers than the positions of {family.model_type}, which are computed "
                    "here"
                )


def _carried(family: Family[Any], fit: _Fit, weights: WeightFiles) -> dict[str, torch.Tensor]:
    """The tensors of a file that nothing here is computed with, by their names without the prefix."""
    shapes = family.carried_shapes(fit.model.spec, fit.bare)
    present = [name for name, shape in shapes.items() if weights.shapes.get(name) == shape]
    return {name.removeprefix(family.prefix): weights.read(name) for name in present}


def _tell(family: Family[Any], config: Mapping[str, Any], fit: _Fit, named: str, folder: Path) -> None:
    """Warn of missing and unexpected tensors. Raises ValueError if the file lacks parts of the class in its config."""
    if fit.reading.unused:
        _warn(folder, f"UNEXPECTED: nothing of {fit.cls} is computed with {listed(fit.reading.unused)}; it is left out")
    if copies := [name for entry in fit.reading.taken if entry.copied for name in entry.theirs]:
        missing = [f"{name.removesuffix('bias')}decoder.bias" for name in copies]
        _warn(
            folder, f"MISSING: {listed(missing)}, the bias of a head that is not tied; {listed(copies)} is taken for it"
        )
    if (fit.cls, fit.variant) == (named, 0):
        return
    spec = _spec(family, config, named, 0)
    whole = Names.of(family.table(spec, fit.bare), build(spec, device="meta"))
    missing = [name for entry in whole.written() for name in entry.theirs if fit.names.lacks(entry)]
    if not missing:
        if fit.cls != named:
            _warn(
                folder,
                f"its configuration names {named}, and its weights belong to {fit.cls}, which it is loaded as",
            )
        return
    embeds = (folder / MODULES).is_file()  # its Transformer is a bare model, whatever it was once
    if fit.cls == named:
        if family.classes[named].bare and not embeds:
            _warn(folder, f"MISSING: {listed(missing)}, which {named} has; the model is loaded without them")
    elif not config.get("architectures"):
        _warn(folder, f"its configuration names no class, and its weights belong to {fit.cls}, which it is loaded as")
    elif not (embeds and family.classes[fit.cls].bare):
        raise ValueError(
            f"{folder} lacks {listed(missing)}, which {named} has (MISSING); its weights belong to {fit.cls}: to load it "
            f'as that, put "architectures": ["{fit.cls}"] into its {CONFIG}'
        )


def _warn(folder: Path, what: str) -> None:
    warnings.warn(f"{folder}: {what}", stacklevel=4)


def _naming_config(folder: Path, family: Family[Any], make: Callable[[], T]) -> T:
    """Call `make`; its ValueErrors name the configuration and the family."""
    try:
        return make()
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}, of model type {family.model_type!r}: {error}") from None


def _spec(family: Family[Any], config: Mapping[str, Any], cls: str, variant: int) -> ModelSpec:
    """The spec by the family's keys, or the one that qkv wrote beside them if it says the same and more."""
    spec = family.spec(config, cls, variant)
    Maybe(ObjectKind()).check(config.get("qkv"), "qkv")
    own = (config.get("qkv") or {}).get("spec")
    Maybe(ObjectKind()).check(own, "qkv.spec")
    if own is None:
        return spec
    try:
        more = type(spec).from_dict(own)
    except ValueError as error:
        raise ValueError(f"qkv.spec: {error}") from None
    return spec if difference(spec, without_sentence_vector(more)) else more
