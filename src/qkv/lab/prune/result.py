"""`PruningResult`, what was removed from a run and what it cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ...nn.pruning.choose import elbow
from ...nn.pruning.redundancy import Redundancy


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
    until:      the growth of the loss that was allowed; `losses` are (heads without output, loss) up to the first above it.
    redundancy: similarity of the heads of each stack, before anything is removed.
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
    until: float | None = None
    losses: list[tuple[int, float]] = field(default_factory=list)
    redundancy: Mapping[str, Redundancy] = field(default_factory=dict)

    @property
    def elbows(self) -> dict[str, float]:
        """The share of heads at the elbow of the curve of each metric (`nn.pruning.choose.elbow`); without those of straight
        curves."""
        names = self.curve[0][1] if self.curve else {}
        curves = {name: [(share, found[name]) for share, found in self.curve if name in found] for name in names}
        places = {name: elbow(points) for name, points in curves.items()}
        return {name: curves[name][place][0] for name, place in places.items() if place is not None}

    def ranks_by_layer(self) -> dict[str, dict[str, int]]:
        """The rank of each matrix by its name, for each sublayer: `{"decoder.0.attention": {"q": 16}}`."""
        layers: dict[str, dict[str, int]] = {}
        for path, rank in self.ranks.items():
            sublayer, _, name = path.replace(".blocks.", ".").rpartition(".")
            layers.setdefault(sublayer, {})[name] = rank
        return layers

    def to_json(self) -> str:
        """Return the result as JSON."""
        return json.dumps({**asdict(self), "folder": str(self.folder), "elbows": self.elbows}, indent=2)
