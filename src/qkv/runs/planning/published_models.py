"""Specs of the models of published runs: presets with other sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...nn.models.base import ModelSpec
from ..recipes.model_choice import ModelChoice


def spec_of(preset: str, sizes: Mapping[str, Any]) -> ModelSpec:
    """The spec of a preset with some sizes changed."""
    return ModelChoice.from_dict({"preset": preset, **sizes}).spec()
