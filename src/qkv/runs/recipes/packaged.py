"""The recipes that come with qkv, as texts: known without what reading one imports."""

from __future__ import annotations

import importlib.resources
from functools import cache


@cache
def packaged() -> dict[str, str]:
    """The texts of the recipes that come with qkv, by name."""
    folder = importlib.resources.files("qkv.runs.recipes")
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".yaml"))
    return {name.removesuffix(".yaml"): folder.joinpath(name).read_text(encoding="utf-8") for name in names}
