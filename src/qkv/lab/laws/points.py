"""`Points`: parameters, training tokens, FLOPs and loss of training runs, and how a table of them is read."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...core.several import path as path_of
from ...core.spec import brief, counted

Values = NDArray[np.float64]
FLOPS_PER_PARAMETER = 6.0  # and token of training: 2 forward and 4 backward (Kaplan et al. 2020, §2.1)
COLUMNS = {
    "parameters": ("parameters", "params", "n", "model size", "model_size"),
    "tokens": ("tokens", "d", "training tokens", "training_tokens"),
    "loss": ("loss", "l", "final loss", "final_loss"),
    "flops": ("flops", "c", "compute", "training flop", "training flops", "training_flops"),
}


@dataclass(frozen=True)
class Points:
    """Runs as arrays of equal length: N parameters, D tokens of training, the held-out loss (nats per token) and C FLOPs."""

    parameters: Values
    tokens: Values
    loss: Values
    flops: Values

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, float]]) -> Self:
        """Make points of rows with `parameters`, `tokens`, `loss` and, unless 6 N D is meant, `flops`.

        Raises ValueError for a value that is not a positive number.
        """
        columns: dict[str, list[float]] = {field.name: [] for field in fields(cls)}
        for number, row in enumerate(rows, 1):
            for name in columns:
                value = _completed(row, name)
                if not (math.isfinite(value) and value > 0):
                    raise ValueError(f"{name} of point {number} is {value:g}; it is a positive number")
                columns[name].append(value)
        return cls(**{name: np.array(values, dtype=np.float64) for name, values in columns.items()})

    def __len__(self) -> int:
        return len(self.loss)

    def __getitem__(self, chosen: NDArray[Any] | Sequence[int] | slice) -> Self:
        """Return the points at the indices, or where the mask is true."""
        return type(self)(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    @property
    def flops_per_parameter(self) -> float:
        """FLOPs per parameter and token of training, C / (N D): the geometric mean over the points."""
        return float(np.exp(np.mean(np.log(self.flops) - np.log(self.parameters) - np.log(self.tokens))))

    def without_highest(self, count: int) -> Self:
        """Leave out the points with the highest losses. Raises ValueError if none would be left."""
        if count >= len(self):
            raise ValueError(f"leaving out the {count} highest losses leaves none of {counted(len(self), 'point')}")
        return self[np.sort(np.argsort(self.loss, kind="stable")[: len(self) - count])]

    def to_rows(self) -> list[dict[str, float]]:
        """One mapping for each point."""
        names = [field.name for field in fields(self)]
        columns = [getattr(self, name).tolist() for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _completed(row: Mapping[str, float], name: str) -> float:
    """A value of a row; tokens and FLOPs follow from each other by C = 6 N D."""
    if name in row:
        return row[name]
    if name == "flops":
        return FLOPS_PER_PARAMETER * row["parameters"] * row["tokens"]
    return row["flops"] / (FLOPS_PER_PARAMETER * row["parameters"])


def read_points(path: Path | str) -> Points:
    """Read a CSV table with the columns parameters, loss, and tokens or flops (or both). Rows without a loss are left out:
    they are runs that diverged.

    Raises ValueError for a missing column, a value that is not a number, and rows of several recipes.
    """
    path = path_of(path, "a table of points")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            names = _columns(path, reader.fieldnames or ())
            rows = list(reader)
    except (UnicodeDecodeError, csv.Error):
        raise ValueError(f"{path} is not a CSV file in UTF-8") from None
    recipes = sorted({row["recipe"] for row in rows if row.get("recipe")})
    if len(recipes) > 1:
        raise ValueError(
            f"{path} has points of {len(recipes)} recipes ({', '.join(recipes[:4])}); their losses can't be compared, so "
            "fit the points of each recipe by themselves"
        )
    trained = [(line, row) for line, row in enumerate(rows, 2) if (row[names["loss"]] or "").strip()]
    return Points.of([{name: _number(path, line, row, names[name]) for name in names} for line, row in trained])


def _columns(path: Path, header: Iterable[str]) -> dict[str, str]:
    """The header of each column that there is."""
    header = list(header)
    by_name = {name.strip().lower(): name for name in reversed(header)} | {name.strip(): name for name in header}
    columns = {
        key: by_name[alias] for key, aliases in COLUMNS.items() if (alias := next(filter(by_name.get, aliases), None))
    }
    missing = [name for name in ("parameters", "loss") if name not in columns]
    if not missing and "tokens" not in columns and "flops" not in columns:
        missing = ["tokens (or flops)"]
    if missing:
        raise ValueError(
            f"{path} has no column {' and no column '.join(missing)}; a table of points is a CSV file with the columns "
            "parameters, tokens and loss, and perhaps flops"
        )
    return columns


def _number(path: Path, line: int, row: Mapping[str, str], name: str) -> float:
    try:
        return float(row[name])
    except (TypeError, ValueError):
        raise ValueError(f"{path}, line {line}: {name} is {brief(row[name])}, not a number") from None
