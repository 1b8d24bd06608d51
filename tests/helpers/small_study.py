"""A scaling study small enough to be trained in a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from small_comparison import SMALL

from qkv.lab.scaling.study import ScalingStudy

LADDER: dict[str, Any] = {"budgets": [8e7, 1.6e8], "sizes": ["8x1", "16x1", "24x1", "32x1"], "rate": "width^-1"}


def written_study(folder: Path, **ladder: Any) -> Path:
    """The file of a recipe with the key `scaling`, on texts in `folder`."""
    words = "the quick brown fox jumps over the lazy dog while it rains in the wood and nobody minds\n"
    paths = {"train": "path", "validation": "validation_path", "test": "test_path"}
    for split in paths:
        (folder / f"{split}.txt").write_text(words * (40 if split == "train" else 8))
    data = {"kind": "text", **{key: str(folder / f"{split}.txt") for split, key in paths.items()}}
    recipe = {key: value for key, value in SMALL.items() if key not in ("compare", "measure")}
    recipe["model"] = {**recipe["model"], "d_ff": 32}
    (folder / "study.yaml").write_text(yaml.safe_dump({**recipe, "data": data, "scaling": {**LADDER, **ladder}}))
    return folder / "study.yaml"


def small_study(folder: Path, **ladder: Any) -> ScalingStudy:
    return ScalingStudy.load(written_study(folder), (), **ladder)
