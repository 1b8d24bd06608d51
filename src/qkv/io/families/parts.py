"""Configurations within a configuration: models of other families that a model consists of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.spec import brief
from ...nn.models.transformer import Transformer
from ..hub.family import Family
from ..hub.keys import Config


@dataclass(frozen=True)
class Part:
    """A size that is a model of another family, whose configuration stands under a key.

    shared:  keys beside it, with their defaults, that decide whatever the same keys inside say.
    usual:   the configuration of a file without one.
    alike:   other model types that are one and the same model.
    instead: a key whose configuration counts in place of this one, as in old files.
    """

    key: str
    size: str
    family: Family
    shared: Mapping[str, Any] = field(default_factory=dict)
    usual: Mapping[str, Any] = field(default_factory=dict)
    alike: tuple[str, ...] = ()
    instead: str | None = None

    @property
    def keys(self) -> Mapping[str, Any]:
        return {self.key: {}, **({} if self.instead is None else {self.instead: None}), **self.shared}

    def inside(self, config: Config) -> dict[str, Any]:
        """The configuration of the part."""
        instead = None if self.instead is None else config[self.instead]
        return dict(instead or config[self.key] or self.usual)

    def read(self, config: Config) -> Transformer:
        inside = self.inside(config)
        own = self.family.model_type
        if (model_type := inside.get("model_type", own)) not in (own, *self.alike):
            raise ValueError(
                f"{self.key} is of the model type {brief(model_type)}, and what is built here is {brief(own)}"
            )
        inside.pop("architectures", None)  # names that the authors' classes had
        try:
            return self.family.spec({**inside, **{key: config[key] for key in self.shared}})
        except ValueError as error:
            raise ValueError(f"{self.key}: {error}") from None

    def write(self, value: Transformer, sizes: Mapping[str, Any]) -> dict[str, Any]:
        inside = self.family.config(value)
        del inside["architectures"]
        return {self.key: inside, **{key: inside[key] for key in self.shared}}
