"""`ModelChoice`: the `model` of a recipe, a preset with sizes and changes or a trained model to fine-tune."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_serializer, model_validator

from ...core.spec import Spec, explain
from ...io import families
from ...io.directories.locate import SMALL_ENGLISH, locate
from ...io.directories.spec import spec_of, weights_of
from ...io.hub.gguf.container import is_gguf
from ...nn.models.base import ModelSpec
from ...nn.quantization.scheme import Weights
from .sizes import check_sizes, sizes_of

PRESET, DIRECTORY, REPLACE, WEIGHTS = "preset", "directory", "replace", "weights"


class ModelChoice(Spec):
    """The model of a recipe: a preset with sizes and changes, `{preset: transformer, d_model: 256, replace:
    {decoder.position: alibi}}`, or a trained model to continue from, `{directory: gpt2}`. A bare name is that of a preset,
    or else of a directory.

    preset:    a name of `qkv list presets`.
    directory: a run's, or one in the Hub's format, or `owner/name` on the Hub: spec, weights and tokenizer.
    sizes:     all other keys except `replace`: arguments of the preset's function (`d_model`, `n_layers` …).
    weights:   int8, int4, nf4, fp8 or mxfp4: quantize the linear layers of a trained model, under an adapter (QLoRA).
    changes:   the key `replace`: dotted paths into the model's spec and their new values, see `Spec.replace`.
    """

    preset: str = ""
    directory: str | None = None
    weights: Weights | None = None
    sizes: dict[str, Any] = Field(default_factory=dict)
    changes: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and not {"sizes", "changes"} & set(value):
            preset = value.get(PRESET, value.get("kind"))  # a bare name arrives as a kind, see `Spec`
            reserved = (
                (PRESET, DIRECTORY, REPLACE, WEIGHTS) if PRESET in value else (DIRECTORY, REPLACE, WEIGHTS, "kind")
            )
            sizes = {key: item for key, item in value.items() if key not in reserved}
            origin = {name: item for name, item in ((PRESET, preset), (DIRECTORY, value.get(DIRECTORY))) if item}
            if isinstance(preset, str) and _is_directory(preset) and preset not in families.presets():
                origin = {DIRECTORY: preset}
            if (bare := _bare_directory(sizes, preset)) is not None:  # model=DIR model.preset=NAME
                origin |= {DIRECTORY: bare}
            origin |= {WEIGHTS: value[WEIGHTS]} if value.get(WEIGHTS) else {}
            return {**origin, "sizes": sizes, "changes": value.get(REPLACE) or {}}
        return value

    @model_validator(mode="after")
    def _one(self) -> Self:
        if bool(self.preset) == bool(self.directory):
            raise ValueError(
                "give a preset, or the directory of a trained model, and not both; model=DIRECTORY takes the place of a "
                "recipe's preset"
            )
        if self.weights and not self.directory:
            raise ValueError(
                f"weights={self.weights} quantizes a trained model, and {self.preset} starts from nothing; give its "
                "directory, or leave it out"
            )
        if self.directory and self.sizes:
            raise ValueError(
                f"{next(iter(self.sizes))} is given by the model in {self.directory}; what it is made of can be changed "
                "by its place in the spec: model.replace={decoder.position: alibi}"
            )
        return self

    @model_serializer(mode="plain")
    def _flat(self) -> dict[str, Any]:
        if self.directory:
            quantized = {WEIGHTS: self.weights} if self.weights else {}
            return {DIRECTORY: self.directory, **quantized, REPLACE: self.changes}
        return {PRESET: self.preset, **self.sizes, REPLACE: self.changes}

    @property
    def stored(self) -> str | None:
        """How the weights that training starts from are quantized: as `weights` says, or as the directory's are; None if
        they are not."""
        if self.directory is None or self.weights is not None:
            return self.weights
        return weights_of(self.directory)

    @property
    def begins_whole(self) -> bool:
        """Whether every rank loads the whole trained model, since it is changed or a GGUF file, or has quantized weights."""
        directory = self.directory
        return directory is not None and (bool(self.changes or self.stored) or is_gguf(locate(directory)))

    def spec(self, vocab_size: int | None = None) -> ModelSpec:
        """The model's spec, for a tokenizer of this size. Raises ValueError for an unknown name or a wrong value."""
        if self.directory:
            spec = spec_of(self.directory)
            return spec.with_vocabulary(max(vocab_size or 0, spec.vocab_size)).replace(self.changes)
        check_sizes(self.preset, self.sizes)
        takes_vocabulary = self.preset not in families.presets() or "vocab_size" in sizes_of(self.preset)
        sizes = ({} if vocab_size is None or not takes_vocabulary else {"vocab_size": vocab_size}) | self.sizes
        try:
            return families.preset(self.preset, **sizes).replace(self.changes)
        except ValidationError as error:
            raise ValueError(f"model: {explain(error)}") from None


def _bare_directory(sizes: Mapping[str, Any], preset: object) -> str | None:
    """The directory of a trained model that was given by its bare name, beside a preset that has no size `kind`."""
    bare = sizes.get("kind")
    if not isinstance(bare, str) or not isinstance(preset, str) or not _is_directory(bare):
        return None
    return None if preset in families.presets() and "kind" in sizes_of(preset) else bare


def _is_directory(name: str) -> bool:
    """Whether a name is that of a directory, of the model in the package or, because it has a slash, of one on the Hub."""
    try:
        return "/" in name or name == SMALL_ENGLISH or Path(name).expanduser().is_dir()
    except (OSError, ValueError, RuntimeError):  # not a file name: too long, with a NUL, or the home of an unknown user
        return False
