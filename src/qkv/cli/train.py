"""`qkv train` and `qkv demo`: a recipe in, a run directory out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import consent
from .errors import INTERRUPTED
from .say import console, echo

if TYPE_CHECKING:
    from ..experiments.compare.compare import Compared
    from ..experiments.train import Trained

DEMO = "localise"

Settings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the recipe, such as `training.max_steps=100`."),
]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="The run directory. [default: runs/NAME]")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in the directory from its last save.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run in the directory.")]
Device = Annotated[str, typer.Option(metavar="auto|cpu|cuda|mps", help="Where to compute.")]
Precision = Annotated[str | None, typer.Option(metavar="auto|fp32|bf16|fp16", help="The numbers to compute in.")]
Compile = Annotated[
    bool | None, typer.Option("--compile/--no-compile", help="Whether to use `torch.compile`. [default: where it pays]")
]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Seed of weights, dropout and the order of the data.")]
MaxTime = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Stop training after so long: `90s`, `10m`, `1h30m`; a bare number is seconds."),
]
MaxSteps = Annotated[int | None, typer.Option(metavar="N", help="Stop training after so many optimizer steps.")]
MaxEpochs = Annotated[int | None, typer.Option(metavar="N", help="Stop training after so many passes over the data.")]


def train(
    recipe: Annotated[
        str,
        typer.Argument(metavar="RECIPE", help="A recipe's name (`qkv list recipes`), a YAML file or a run directory."),
    ],
    settings: Settings = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
    precision: Precision = None,
    compile: Compile = None,
    seed: Seed = None,
    max_time: MaxTime = None,
    max_steps: MaxSteps = None,
    max_epochs: MaxEpochs = None,
) -> int:
    """Train a model by a recipe, evaluate it, and write its run directory.

    Ctrl-C stops after the running step and saves; `--resume` goes on from there, exactly.
    """
    options = {
        "training.precision": precision,
        "training.compile": compile,
        "seed": seed,
        "training.max_time": max_time,
        "training.max_steps": max_steps,
        "training.max_epochs": max_epochs,
    }
    return _train(recipe, [*(settings or ()), *_as_settings(options)], out, resume, overwrite, device)


def demo(
    settings: Settings = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> int:
    """Train a small translator of dates, numbers and names from nothing: `qkv train localise`, safe to repeat."""
    from ..directories.layout import EVALUATION, REPORT, State

    folder = out or Path("runs") / DEMO
    if State.of(folder) is State.FINISHED and not (resume or overwrite):
        from .results import show_saved

        show_saved(folder / EVALUATION)
        echo(f"The demo has run: {folder} exists (open {folder / REPORT}).")
        echo(f'Use it: qkv translate {folder} "<de> 3 days ago"')
        echo("Replace it: qkv demo --overwrite. Train it on: qkv demo --resume training.max_steps=N.")
        return 0
    return _train(DEMO, list(settings or ()), out, resume, overwrite, device)


def _as_settings(options: Mapping[str, Any]) -> list[str]:
    return [f"{key}={str(value).lower()}" for key, value in options.items() if value is not None]


def _train(recipe: str, settings: list[str], out: Path | None, resume: bool, overwrite: bool, device: str) -> int:
    if resume and overwrite:
        raise ValueError("--resume goes on with a run and --overwrite replaces it; give one of them")
    from ..directories.layout import RECIPE
    from ..experiments.compare.comparison import Comparison
    from ..experiments.train import train
    from ..recipes.recipe import Recipe

    comparison = Comparison.load(recipe, settings)
    if comparison is not None:
        from ..experiments.compare.compare import compare

        place = out or Path("runs") / comparison.name
        for name in comparison.variants:
            consent.remember(place / name, comparison.variant(name).imports)
        return _say_compared(
            compare(comparison, place, resume=resume, overwrite=overwrite, device=device, console=console())
        )
    loaded = Recipe.load(recipe, settings)
    is_run = (Path(recipe) / RECIPE).is_file()
    folder = out or (Path(recipe) if is_run else Path("runs") / loaded.name)
    consent.remember(folder, loaded.imports)
    return _say(train(loaded, folder, resume=resume, overwrite=overwrite, device=device, console=console()))


def _say_compared(done: Compared) -> int:
    if done.report is None:
        echo(f"Interrupted. Go on with the same command and --resume; the comparison is in {done.folder}.")
        return INTERRUPTED
    echo(f"The comparison is in {done.folder}; open {done.report} in a browser.")
    return 0


def _say(done: Trained) -> int:
    from .results import show_evaluation

    if done.evaluation is None:
        echo(f"Go on with: qkv train {done.folder} --resume")
        return INTERRUPTED
    show_evaluation(done.evaluation)
    echo(f"The run is in {done.folder}" + (f"; open {done.report} in a browser." if done.report else "."))
    return 0
