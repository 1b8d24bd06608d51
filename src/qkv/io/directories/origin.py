"""What a Hub directory contains besides its model, kept for saving it again.

A run that was trained from such a directory records it in `origin.json`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from ...core.spec import brief
from ...nn.models.base import ModelSpec
from ...nn.models.heads.sequence import SentenceVector
from ..hub import generation as generation_file
from ..hub.generation import Config, Ids
from ..hub.quantized.config import KEY
from ..hub.values import Maybe, ObjectKind
from .layout import CONFIG, GENERATION, ORIGIN, read_json, write_json

M = TypeVar("M", bound=ModelSpec)
MODEL_TYPE = "qkv"  # of what only qkv knows


@dataclass(frozen=True)
class Origin:
    """What a Hub directory contains besides its model.

    config, generation: the content of its `config.json` and `generation_config.json`.
    ids:                which tokens have roles in generation.
    fields:             its settings of generation as fields of `Generation`.
    carried:            tensors of its weights that nothing here is computed with, by their names without a prefix.
    repository:         its name on the Hub, if it lies in the Hub's cache.
    """

    config: Mapping[str, Any]
    generation: Mapping[str, Any] | None = None
    ids: Ids = field(default_factory=Ids)
    fields: Mapping[str, Any] = field(default_factory=dict)
    carried: Mapping[str, Tensor] = field(default_factory=dict, compare=False, repr=False)
    repository: str | None = field(default=None, compare=False)

    @classmethod
    def of(cls, config: Config, generation: Config | None, spec: ModelSpec, where: Path, settings: Path) -> Origin:
        """What a `config.json` and a `generation_config.json` say; without the latter, the configuration's own settings
        count, as in old files. `where` and `settings` are the two files, for messages.

        Warns about token ids outside the vocabulary, which are left out. Raises ValueError for a setting that is wrong, or
        would change outputs and is not built here.
        """
        size = spec.vocab_size or None
        known = _known(config, where, size)
        said = known if generation is None else _known(generation, settings, size)
        try:
            fields, ids = generation_file.read(said, known, spec.is_encoder_decoder, size)
        except ValueError as error:
            raise ValueError(f"{where if generation is None else settings}: {error}") from None
        return cls(config, generation, ids, fields)

    @property
    def own(self) -> Mapping[str, Any]:
        """What qkv wrote into the configuration of a model that it trained: its task, and what the Hub has no key for."""
        own = self.config.get("qkv")
        return own if isinstance(own, Mapping) else {}

    @property
    def is_ours(self) -> bool:
        """Whether qkv trained the model."""
        return "task" in self.own


def without_sentence_vector(spec: M) -> M:
    """Return the spec without the head `sentence-vector`, which the Hub's format describes in separate files."""
    return spec.replace(head=None) if isinstance(getattr(spec, "head", None), SentenceVector) else spec


def _known(settings: Config, path: Path, vocab_size: int | None) -> Config:
    """Settings without token ids outside the vocabulary; warns about each."""
    if vocab_size is None:
        return settings
    kept, unknown = generation_file.without_unknown(settings, vocab_size)
    for key, value in unknown.items():
        warnings.warn(
            f"{path}: {key} is {brief(value)}, outside the model's vocabulary of {vocab_size:,} tokens; it is ignored",
            stacklevel=2,
        )
    return kept


def keep(folder: Path, origin: Origin) -> None:
    """Record in a run's directory what its model's directory said, but how its weights were quantized."""
    config = {key: value for key, value in origin.config.items() if key != KEY}
    write_json(folder / ORIGIN, {"config": config, "generation": origin.generation})


def kept(folder: Path, spec: ModelSpec) -> Origin | None:
    """What `keep` recorded in a directory, or what a directory says that transformers wrote (`qkv.transformers`), whose
    tokenizer adds its own special tokens; None for another. Raises ValueError if it is damaged."""
    path = folder / ORIGIN
    if not path.is_file():
        return _of_transformers(folder, spec)
    said = read_json(path)
    ObjectKind(most=2).check(said, str(path))
    ObjectKind(most=4096).check(said.get("config"), f"{path}: config")
    Maybe(ObjectKind(most=4096)).check(said.get("generation"), f"{path}: generation")
    return Origin.of(said["config"], said.get("generation"), spec, path, path)


def _of_transformers(folder: Path, spec: ModelSpec) -> Origin | None:
    """What a directory of the model type `qkv` says if transformers wrote it, which knows no tasks; None if qkv did."""
    config = read_json(folder / CONFIG)
    if "transformers_version" not in config or "task" in config:
        return None
    path = folder / GENERATION
    return Origin.of(config, read_json(path) if path.is_file() else None, spec, folder / CONFIG, path)
