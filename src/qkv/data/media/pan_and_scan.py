"""Pan and scan, as Gemma 3 reads long pictures (Gemma Team 2025, section 2.1): the whole picture, and pieces of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ...core.spec import brief
from .images import Pixels


@dataclass(frozen=True)
class PanAndScan:
    """Pieces along the longer side of a picture, if it is at least `ratio` times the shorter one: as many as the shorter
    side fits into it, from 2 to `most`. There are none if a side of a piece has fewer than `smallest` pixels."""

    smallest: int = 256
    most: int = 4
    ratio: float = 1.2

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        """The settings of a `preprocessor_config.json`; None if it does without. Raises ValueError for wrong ones."""
        if not config.get("do_pan_and_scan"):
            return None
        keys = {"smallest": "min_crop_size", "most": "max_num_crops", "ratio": "min_ratio_to_activate"}
        said = {name: config.get(f"pan_and_scan_{key}") for name, key in keys.items()}
        for name, value in said.items():
            if value is not None and not (isinstance(value, int | float) and value >= 1):
                raise ValueError(f"pan_and_scan_{keys[name]} must be a number of at least 1, not {brief(value)}")
        return cls(**{name: value for name, value in said.items() if value is not None})

    def pieces(self, pixels: Pixels) -> list[Pixels]:
        """The pieces of a picture (C, H, W), from its left to its right or from its top to its bottom."""
        short, long = sorted(pixels.shape[1:])
        if long / short < self.ratio:
            return []
        fit = min(math.floor(long / self.smallest), math.floor(long / short + 0.5))
        count = min(int(self.most), max(2, fit))
        length = math.ceil(long / count)
        if min(short, length) < self.smallest:
            return []
        wide = pixels.shape[2] >= pixels.shape[1]
        starts = range(0, min(count * length, long), length)
        return [pixels[:, :, at : at + length] if wide else pixels[:, at : at + length] for at in starts]
