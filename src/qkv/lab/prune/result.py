"""`PruningResult`, what was removed from a run and what it cost."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class PruningResult:
    """The result of `prune`, which is also in `pruning.json`.

    heads, neurons, layers: what was removed; neurons by their number.
    ranks:      of the matrices that became products of two, by the paths of their layers.
    importance: of each head, by layer; empty if heads were given by name.
    curve:      (share of heads without output, loss, metrics) on the validation split, before anything is removed.
    parameters: before and after.
    metrics:    on `examples` of the test split: "before", "pruned" and, after fine-tuning, "finetuned".
    speeds:     "before" and "after": generated tokens per second, or examples if no text is generated.
    """

    source: str
    folder: Path
    by: str
    heads: dict[str, list[int]]
    neurons: dict[str, int]
    layers: dict[str, list[int]]
    importance: dict[str, list[float]]
    curve: list[tuple[float, dict[str, float]]]
    parameters: tuple[int, int]
    metrics: dict[str, dict[str, float]]
    examples: int
    speeds: dict[str, float] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)

    def ranks_by_layer(self) -> dict[str, dict[str, int]]:
        """The rank of each matrix by its name, for each sublayer: `{"decoder.0.attention": {"q": 16}}`."""
        layers: dict[str, dict[str, int]] = {}
        for path, rank in self.ranks.items():
            sublayer, _, name = path.replace(".blocks.", ".").rpartition(".")
            layers.setdefault(sublayer, {})[name] = rank
        return layers

    def to_json(self) -> str:
        """Return the result as JSON."""
        return json.dumps({**asdict(self), "folder": str(self.folder)}, indent=2)
