"""`QuantizedRun`, what quantization did to a run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class QuantizedRun:
    """The result of `quantize`, which is also in `quantization.json`.

    weights, method, activations: of the scheme; groups: inputs that share a scale, by layer.
    calibration: what the data were, in words; empty without.
    errors:    by layer, the relative error of its outputs over the calibration data, or without data of its weights.
    sizes:     bytes of all weights before and after.
    metrics:   "before" and "after", on `examples` of `evaluated_on`; empty if there is nothing to evaluate on.
    rounded:   by layer, the experts that gptq or awq left to rounding, and how many tokens of the calibration data each got.
    """

    source: str
    folder: Path
    weights: str
    method: str
    activations: str
    groups: dict[str, int]
    calibration: str
    errors: dict[str, float]
    sizes: tuple[int, int]
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    examples: int = 0
    evaluated_on: str = ""
    rounded: dict[str, dict[int, int]] = field(default_factory=dict)

    def worst(self, count: int = 5) -> dict[str, float]:
        """The layers with the largest errors."""
        return dict(sorted(self.errors.items(), key=lambda item: -item[1])[:count])

    def to_json(self) -> str:
        """Return the result as JSON."""
        return json.dumps({**asdict(self), "folder": str(self.folder)}, indent=2)
