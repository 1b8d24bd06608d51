"""Train every variant of a comparison, measure each as soon as it is there, and draw them together."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ..run import directory
from ..run.directory import State
from ..run.load import load
from ..run.train import train
from .comparison import Comparison
from .measures import Curve
from .page import write_page

FOUND = "comparison.json"
WHOLE = "comparison.yaml"


@dataclass(frozen=True)
class Compared:
    """`curves` by variant, as far as they are measured; `report` is None where it was interrupted."""

    folder: Path
    curves: dict[str, Curve]
    report: Path | None = None


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
    directory.write_text(out / WHOLE, comparison.to_yaml())
    curves: dict[str, Curve] = {}
    for number, (name, recipe) in enumerate(recipes.items(), 1):
        folder = out / name
        console.print(f"{name} ({number} of {len(recipes)})", style="bold", highlight=False)
        if State.of(folder) is not State.FINISHED or not resume:
            goes_on = resume and State.of(folder) is State.STARTED
            done = train(recipe, folder, resume=goes_on, device=device, console=console)
            if done.evaluation is None:
                return Compared(out, curves)
        curves[name] = comparison.measure(load(folder, device=device))
        directory.write_json(out / FOUND, _facts(comparison, curves))
        gc.collect()
    return Compared(out, curves, write_page(comparison, curves, out))


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
    if directory.read_text(kept) != comparison.to_yaml():
        raise ValueError(
            f"the comparison in {out} has other settings; resume it with those, or replace it (--overwrite)"
        )


def _clear(out: Path, variants: Iterable[str]) -> None:
    """Remove what a comparison has found, and its variants' runs. What is no run stays, and is refused when it is met."""
    for name in (FOUND, directory.REPORT):
        (out / name).unlink(missing_ok=True)
    for folder in (out / name for name in variants):
        if State.of(folder) in (State.STARTED, State.FINISHED):
            directory.clear(folder)


def _facts(comparison: Comparison, curves: dict[str, Curve]) -> dict[str, Any]:
    measure = comparison.measure
    return {"name": comparison.name, "measure": measure.to_dict(), "x": measure.x, "y": measure.y, "curves": curves}
