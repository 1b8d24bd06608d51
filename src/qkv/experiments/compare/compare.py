"""Train and measure every variant of a comparison, and write its report."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ...directories import layout
from ...directories.layout import State
from ...inference.run import load
from ..train import train
from .comparison import Comparison
from .costs import Costs, costs
from .measures import Curve, Measure, Measurement
from .page import write_page

RESULTS = "comparison.json"
SETTINGS = "comparison.yaml"


@dataclass(frozen=True)
class Compared:
    """The result of `compare`.

    curves: by variant, as far as they are measured.
    report: None if the comparison was interrupted.
    beside: the curves of each further measure.
    costs:  by variant.
    """

    folder: Path
    curves: dict[str, Curve]
    report: Path | None = None
    beside: tuple[dict[str, Curve], ...] = ()
    costs: dict[str, Costs] = field(default_factory=dict)


def compare(
    comparison: Comparison,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: str | torch.device = "auto",
    console: Console | None = None,
) -> Compared:
    """Train each variant into a folder of its own below `out`, and write `comparison.json` and `report.html` there.

    resume:    continue an interrupted comparison; finished variants are not trained again.
    overwrite: remove the runs of all variants first.

    Raises ValueError, before anything is trained, if a variant is not a valid recipe or `out` holds something else.
    """
    console = console or Console(quiet=True)
    recipes = {name: comparison.variant(name) for name in comparison.variants}
    _admit(comparison, out, resume, overwrite)
    if overwrite:
        _clear(out, comparison.variants)
    out.mkdir(parents=True, exist_ok=True)
    layout.write_text(out / SETTINGS, comparison.to_yaml())
    measurements = [Measurement(measure) for measure in comparison.measure.all]
    for number, (name, recipe) in enumerate(recipes.items(), 1):
        folder = out / name
        console.print(f"{name} ({number} of {len(recipes)})", style="bold", highlight=False)
        if State.of(folder) is not State.FINISHED or not resume:
            unfinished = resume and State.of(folder) is State.STARTED
            result = train(recipe, folder, resume=unfinished, device=device, console=console)
            if result.evaluation is None:
                return Compared(out, measurements[0].curves)
        run = load(folder, device=device)
        for measurement in measurements:
            measurement.add(name, run)
        layout.write_json(out / RESULTS, _results(comparison, measurements))
        gc.collect()
    console.print("Timing a training step of each variant", style="bold", highlight=False)
    measured = costs({name: load(out / name, device=device) for name in recipes})
    layout.write_json(out / RESULTS, _results(comparison, measurements, measured))
    curves, *beside = (measurement.curves for measurement in measurements)
    return Compared(out, curves, write_page(comparison, measurements, measured, out), tuple(beside), measured)


def _admit(comparison: Comparison, out: Path, resume: bool, overwrite: bool) -> None:
    """Check that `out` is free, or can be resumed or overwritten. Raises ValueError if it can't be used."""
    saved = out / SETTINGS
    if not saved.is_file():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ValueError(f"{out} holds something that is not a comparison; choose another directory with --out")
        return
    if overwrite or not any(State.of(out / name) is not State.FREE for name in comparison.variants):
        return
    if not resume:
        raise ValueError(
            f"{out} holds a comparison; continue it with --resume, replace it with --overwrite, or choose another directory "
            "with --out"
        )
    if layout.read_text(saved) != comparison.to_yaml():
        raise ValueError(
            f"the comparison in {out} has other settings; resume it with those, or replace it with --overwrite"
        )


def _clear(out: Path, variants: Iterable[str]) -> None:
    """Remove a comparison's results and its variants' runs. Other directories stay, and `train` refuses to use them."""
    for name in (RESULTS, layout.REPORT):
        (out / name).unlink(missing_ok=True)
    for folder in (out / name for name in variants):
        if State.of(folder) in (State.STARTED, State.FINISHED):
            layout.clear(folder)


def _results(
    comparison: Comparison, measurements: Sequence[Measurement], measured: Mapping[str, Costs] | None = None
) -> dict[str, Any]:
    """The content of `comparison.json`."""
    first, *beside = ({**_axes(one.measure), "curves": one.curves, "remarks": one.remarks} for one in measurements)
    by_variant = {} if measured is None else {"costs": {name: one.to_dict() for name, one in measured.items()}}
    return {"name": comparison.name, **first, "beside": beside, **by_variant}


def _axes(measure: Measure) -> dict[str, Any]:
    return {"measure": measure.to_dict(), "x": measure.x, "y": measure.y}
