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
from .measures import Curve, Measure
from .page import Found, write_page

KEPT = "comparison.json"
WHOLE = "comparison.yaml"


@dataclass(frozen=True)
class Compared:
    """`curves` by variant, as far as they are measured; `report` is None where it was interrupted. `beside` are those of the
    measures beside the first, `costs` what each variant costs."""

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
    """Train each variant into a folder of its own below `out`, and leave `comparison.json` and `report.html` there.

    Raises ValueError before anything is trained where a variant is no recipe or `out` holds something else. What is
    finished is never trained again: `resume` goes on where an interrupted comparison stood. `overwrite` removes the runs
    of all variants first, so that what is resumed later is of one comparison.
    """
    console = console or Console(quiet=True)
    recipes = {name: comparison.variant(name) for name in comparison.variants}
    _admit(comparison, out, resume, overwrite)
    if overwrite:
        _clear(out, comparison.variants)
    out.mkdir(parents=True, exist_ok=True)
    layout.write_text(out / WHOLE, comparison.to_yaml())
    found = [Found(measure) for measure in comparison.measure.all]
    for number, (name, recipe) in enumerate(recipes.items(), 1):
        folder = out / name
        console.print(f"{name} ({number} of {len(recipes)})", style="bold", highlight=False)
        if State.of(folder) is not State.FINISHED or not resume:
            goes_on = resume and State.of(folder) is State.STARTED
            done = train(recipe, folder, resume=goes_on, device=device, console=console)
            if done.evaluation is None:
                return Compared(out, found[0].curves)
        run = load(folder, device=device)
        for one in found:
            one.add(name, run)
        layout.write_json(out / KEPT, _facts(comparison, found))
        gc.collect()
    console.print("Timing a step of each", style="bold", highlight=False)
    spent = costs({name: load(out / name, device=device) for name in recipes})
    layout.write_json(out / KEPT, _facts(comparison, found, spent))
    curves, *beside = (one.curves for one in found)
    return Compared(out, curves, write_page(comparison, found, spent, out), tuple(beside), spent)


def _admit(comparison: Comparison, out: Path, resume: bool, overwrite: bool) -> None:
    kept = out / WHOLE
    if not kept.is_file():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ValueError(f"{out} holds something that is no comparison; choose another directory with --out")
        return
    if overwrite or not any(State.of(out / name) is not State.FREE for name in comparison.variants):
        return  # it never came to train anything
    if not resume:
        raise ValueError(
            f"{out} holds a comparison; go on with it (--resume), replace it (--overwrite), or take another"
        )
    if layout.read_text(kept) != comparison.to_yaml():
        raise ValueError(
            f"the comparison in {out} has other settings; resume it with those, or replace it (--overwrite)"
        )


def _clear(out: Path, variants: Iterable[str]) -> None:
    """Remove what a comparison has found, and its variants' runs. What is no run stays, and is refused when it is met."""
    for name in (KEPT, layout.REPORT):
        (out / name).unlink(missing_ok=True)
    for folder in (out / name for name in variants):
        if State.of(folder) in (State.STARTED, State.FINISHED):
            layout.clear(folder)


def _facts(comparison: Comparison, found: Sequence[Found], spent: Mapping[str, Costs] | None = None) -> dict[str, Any]:
    first, *beside = ({**_axes(one.measure), "curves": one.curves, "remarks": one.remarks} for one in found)
    known = {} if spent is None else {"costs": {name: one.to_dict() for name, one in spent.items()}}
    return {"name": comparison.name, **first, "beside": beside, **known}


def _axes(measure: Measure) -> dict[str, Any]:
    return {"measure": measure.to_dict(), "x": measure.x, "y": measure.y}
