"""Train and measure every variant of a comparison, and write its report."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ...core import several, yamls
from ...core.atomic import drop_old
from ...core.device import choose
from ...io.directories import layout
from ...io.directories.layout import RunState
from ..inference.run import load
from ..recipes.recipe import COMPARE, Recipe
from ..train.train import train
from .comparison import Comparison
from .costs import VariantCosts, costs
from .measures import Curve, Measure, Measurement
from .page import write_page
from .study_directory import begun, check_contents, data_of

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
    costs: dict[str, VariantCosts] = field(default_factory=dict)


def compare(
    comparison: Comparison,
    out: Path | str,
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: str | torch.device = "auto",
    console: Console | None = None,
) -> Compared:
    """Train each variant into its own folder below `out`, and write `comparison.json` and `report.html` there.

    resume:    continue an interrupted comparison; finished variants are not trained again.
    overwrite: replace the comparison in `out`, which is kept as `.old-NAME` until the new one is finished.

    Raises ValueError, before anything is trained, if a variant is not a valid recipe or `out` holds something else.
    """
    several.instance(comparison, Comparison, "comparison", "Comparison.load")
    several.flags(resume=resume, overwrite=overwrite)
    console, out, _ = console or Console(quiet=True), several.path(out, "out"), choose(device)
    recipes = {name: comparison.variant(name) for name in comparison.variants}
    _admit(comparison, out, resume, overwrite)
    with begun(out, SETTINGS, comparison.to_yaml(), console, overwrite, data_of(recipes)):
        return _train_all(comparison, recipes, out, resume, device, console)


def _train_all(
    comparison: Comparison,
    recipes: Mapping[str, Recipe],
    out: Path,
    resume: bool,
    device: str | torch.device,
    console: Console,
) -> Compared:
    """Train and measure each variant, and write the results and the report."""
    measurements = [Measurement(measure) for measure in comparison.measure.all]
    for number, (name, recipe) in enumerate(recipes.items(), 1):
        folder = out / name
        console.print(f"{name} ({number} of {len(recipes)})", style="bold", highlight=False)
        if RunState.of(folder) is not RunState.FINISHED or not resume:
            unfinished = resume and RunState.of(folder) is RunState.STARTED
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
    page = write_page(comparison, measurements, measured, out)
    drop_old(out)
    return Compared(out, curves, page, tuple(beside), measured)


def _admit(comparison: Comparison, out: Path, resume: bool, overwrite: bool) -> None:
    """Check that `out` is free, or can be resumed or overwritten. Raises ValueError if it can't be used."""
    saved = out / SETTINGS
    if not saved.is_file():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ValueError(f"{out} holds something that is not a comparison; choose another directory with --out")
        return
    if overwrite:
        check_contents(
            out, (RESULTS, layout.REPORT), SETTINGS, "a comparison", [out / name for name in _variants(saved)]
        )
        return
    if not any(RunState.of(out / name) is not RunState.FREE for name in comparison.variants):
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


def _variants(settings: Path) -> list[str]:
    """The names of the variants of a comparison that was begun."""
    variants = yamls.load(layout.read_text(settings), str(settings)).get(COMPARE)
    return list(map(str, variants)) if isinstance(variants, dict) else []


def _results(
    comparison: Comparison, measurements: Sequence[Measurement], measured: Mapping[str, VariantCosts] | None = None
) -> dict[str, Any]:
    """The content of `comparison.json`."""
    first, *beside = ({**_axes(one.measure), "curves": one.curves, "remarks": one.remarks} for one in measurements)
    by_variant = {} if measured is None else {"costs": {name: one.to_dict() for name, one in measured.items()}}
    return {"name": comparison.name, **first, "beside": beside, **by_variant}


def _axes(measure: Measure) -> dict[str, Any]:
    return {"measure": measure.to_dict(), "x": measure.x, "y": measure.y}
