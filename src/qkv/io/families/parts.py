"""Configurations within a configuration: models of other families that a model consists of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.spec import brief
from ...nn.layers.embedding import Embedding
from ...nn.models.initialization import Normal
from ...nn.models.joint import Joint
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import Pattern
from ..hub.family import Family, at
from ..hub.keys import Config
from .llama import FAMILY as LLAMA

READER = "decoder.embedding.media.image.reader"
"""Where the tower of a model's pictures is."""


@dataclass(frozen=True)
class Part:
    """A size that is a model of another family, whose configuration stands under a key.

    shared:  keys beside it, with their defaults, that decide whatever the same keys inside say.
    usual:   the configuration of a file without one.
    alike:   other model types that are one and the same model.
    instead: a key whose configuration counts in place of this one, as in old files.
    others:  further families whose models may stand here, by their model types.
    """

    key: str
    size: str
    family: Family
    shared: Mapping[str, Any] = field(default_factory=dict)
    usual: Mapping[str, Any] = field(default_factory=dict)
    alike: tuple[str, ...] = ()
    instead: str | None = None
    others: tuple[Family, ...] = ()

    @property
    def keys(self) -> Mapping[str, Any]:
        return {self.key: {}, **({} if self.instead is None else {self.instead: None}), **self.shared}

    def inside(self, config: Config) -> dict[str, Any]:
        """The configuration of the part."""
        instead = None if self.instead is None else config[self.instead]
        return dict(instead or config[self.key] or self.usual)

    def read(self, config: Config) -> Transformer:
        inside = self.inside(config)
        family = self._family(inside.get("model_type"))
        inside.pop("architectures", None)  # names that the authors' classes had
        try:
            return family.spec({**inside, **{key: config[key] for key in self.shared}})
        except ValueError as error:
            raise ValueError(f"{self.key}: {error}") from None

    def _family(self, model_type: object) -> Family:
        known = {family.model_type: family for family in (self.family, *self.others)}
        if model_type is None or model_type in self.alike:
            return self.family
        if not isinstance(model_type, str) or model_type not in known:
            raise ValueError(
                f"{self.key} is of the model type {brief(model_type)}, and what is built here is "
                f"{' or '.join(map(brief, known))}"
            )
        return known[model_type]

    def write(self, value: Transformer, sizes: Mapping[str, Any]) -> dict[str, Any]:
        inside = self._written(value)
        del inside["architectures"]
        return {self.key: inside, **{key: inside[key] for key in self.shared}}

    def _written(self, value: Transformer) -> dict[str, Any]:
        """The configuration in the first family that can express a model. Raises ValueError as the first does."""
        errors = []
        for family in (self.family, *self.others):
            try:
                return family.config(value)
            except ValueError as error:
                errors.append(error)
        raise errors[0]


def text_of(spec: Transformer) -> Transformer:
    """The decoder without its media. Raises AttributeError for a model without any."""
    embedding = at(spec, "decoder.embedding")
    if not isinstance(embedding, Joint):
        raise AttributeError("no media")
    fields = {name: getattr(embedding, name) for name in Embedding.model_fields}
    return spec.replace({"decoder.embedding": Embedding(**fields), "head": spec.head or LLAMA.make().head})


def vision_of(spec: Transformer) -> Transformer:
    """The tower of the pictures, as a model."""
    tower = at(spec, "decoder.embedding.media.0.reads")
    return Transformer(d_model=tower.width, encoder=tower.stack, head=None, initialization=Normal(scale_residual=False))


def with_patterns(spec: Transformer, change: Callable[[Pattern], Pattern]) -> Transformer:
    """A decoder with other patterns in its layers."""
    decoder = at(spec, "decoder")
    patterns = {i: change(block.attention.pattern) for i, block in enumerate(decoder.blocks)}
    return spec.replace({f"decoder.blocks.{i}.attention.pattern": pattern for i, pattern in patterns.items()})
