"""What a Hub directory contains besides its model, kept for saving it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...nn.models.heads.sequence import SentenceVector
from ...nn.models.transformer import Transformer
from ..hub.generation import Ids

MODEL_TYPE = "qkv"  # of what only qkv knows


@dataclass(frozen=True)
class Origin:
    """What a Hub directory contains besides its model.

    config, generation: the content of its `config.json` and `generation_config.json`.
    ids:                which tokens have roles in generation.
    fields:             its settings of generation as fields of `Generation`.
    """

    config: Mapping[str, Any]
    generation: Mapping[str, Any] | None = None
    ids: Ids = field(default_factory=Ids)
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def own(self) -> Mapping[str, Any]:
        """What qkv wrote into the configuration of a model that it trained: its task, and what the Hub has no key for."""
        own = self.config.get("qkv")
        return own if isinstance(own, Mapping) else {}

    @property
    def is_ours(self) -> bool:
        """Whether qkv trained the model."""
        return "task" in self.own


def without_sentence_vector(spec: Transformer) -> Transformer:
    """Return the spec without the head `sentence-vector`, which the Hub's format describes in separate files."""
    return spec.replace(head=None) if isinstance(spec.head, SentenceVector) else spec
