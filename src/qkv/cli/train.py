"""`qkv train` and `qkv demo`: train a recipe and write a run directory."""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import completion, consent
from .errors import INTERRUPTED, USER
from .guessed import confirmed, further_files, is_data
from .options import Device, arguments
from .say import console, echo

if TYPE_CHECKING:
    from ..data.source import Source
    from ..runs.compare.compare import Compared
    from ..runs.recipes.recipe import Recipe
    from ..runs.train.train import Trained

DEMO = "localise"

Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Settings to change, such as `training.max_steps=100`.",
        autocompletion=completion.settings,
    ),
]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="The run directory. [default: runs/NAME]")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in the directory from its last save.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run in the directory.")]
Precision = Annotated[
    str | None,
    typer.Option(
        metavar="auto|fp32|bf16|fp16",
        help="The precision of training. [default: the recipe's]",
        autocompletion=completion.precisions,
    ),
]
Compile = Annotated[
    bool | None,
    typer.Option("--compile/--no-compile", help="Whether to use `torch.compile`. [default: the recipe's]"),
]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Seed of weights, dropout and the order of the data.")]
MaxTime = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Stop training after this time: `90s`, `10m`, `1h30m`, or a number of seconds."),
]
MaxSteps = Annotated[int | None, typer.Option(metavar="N", help="Stop training after N optimizer steps.")]
MaxEpochs = Annotated[int | None, typer.Option(metavar="N", help="Stop training after N passes over the data.")]


Nproc = Annotated[
    int | None,
    typer.Option(
        "--nproc", metavar="N", min=1, help="Train with N processes on this machine, see the recipe's `scale`."
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Report each choice of the number of threads, with the reason.")
]
Restarts = Annotated[
    int,
    typer.Option(metavar="N", min=0, help="With --nproc: after a crash, continue from the last save up to N times."),
]


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="A recipe (`qkv list recipes`), a YAML file or a run directory; or a file or folder of data, for which a "
            "recipe is guessed.",
            autocompletion=completion.recipes,
        ),
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
    yes: Annotated[
        bool, typer.Option("--yes", help="Train what was guessed for a file or folder without asking.")
    ] = False,
    nproc: Nproc = None,
    restarts: Restarts = 0,
    verbose: Verbose = False,
) -> int:
    """Train a recipe's model, evaluate it, and write a run directory.

    Ctrl-C stops after the current step and saves; `--resume` continues exactly from there.
    """
    if nproc is not None and nproc > 1 and not _is_rank():
        return _launch(recipe, settings or [], out, nproc, restarts, yes, device)
    if restarts and nproc is None:
        raise ValueError("--restarts starts the ranks of --nproc again; give --nproc too, or leave it out")
    options = {
        "training.precision": precision,
        "training.compile": compile,
        "seed": seed,
        "training.max_time": max_time,
        "training.max_steps": max_steps,
        "training.max_epochs": max_epochs,
    }
    files, changes = further_files(settings or ()) if is_data(recipe) else ([], list(settings or ()))
    changes = [*changes, *_as_settings(options, changes)]
    if is_data(recipe):
        recipe, changes = confirmed([Path(recipe), *files], changes, yes)
    return _train(recipe, changes, out, resume, overwrite, device, verbose)


def demo(
    settings: Settings = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> int:
    """Train a small translator of dates, numbers and names: `qkv train localise`. Repeating it shows the finished run."""
    from ..io.directories.layout import EVALUATION, REPORT, RunState

    folder = out or Path("runs") / DEMO
    if RunState.of(folder) is RunState.FINISHED and not (resume or overwrite):
        from .results import show_saved

        show_saved(folder / EVALUATION)
        echo(f"The demo is finished: the run is in {folder}; open {folder / REPORT} in a browser.")
        echo(f'Use it: qkv translate {folder} "<de> 3 days ago"')
        echo("Replace it: qkv demo --overwrite. Train it further: qkv demo --resume training.max_steps=N.")
        return 0
    return _train(DEMO, list(settings or ()), out, resume, overwrite, device)


def _as_settings(options: Mapping[str, Any], settings: Sequence[str]) -> list[str]:
    """The options as settings. Raises ValueError if a setting gives another value than an option does."""
    from ..runs.recipes.overrides import parse

    found, given = [], dict(parse(text) for text in settings)
    for key, value in options.items():
        if value is None:
            continue
        text = f"{key}={str(value).lower()}"
        if key in given and given[key] != parse(text)[1]:
            option = f"--{key.rpartition('.')[2].replace('_', '-')}"
            raise ValueError(f"{option} is {value}, and the setting {key} is {given[key]}; give one of them")
        found.append(text)
    return found


def _train(
    recipe: str,
    settings: list[str],
    out: Path | None,
    resume: bool,
    overwrite: bool,
    device: str,
    verbose: bool = False,
) -> int:
    if resume and overwrite:
        raise ValueError("--resume continues a run and --overwrite replaces it; give one of them")
    from ..data import ahead

    if not (resume or _is_rank()):
        _draw_ahead(recipe, settings)
    try:
        return _trained(recipe, settings, out, resume, overwrite, device, verbose)
    finally:
        ahead.end()


def _trained(
    recipe: str, settings: list[str], out: Path | None, resume: bool, overwrite: bool, device: str, verbose: bool
) -> int:
    from .texts import uncollected

    with uncollected():
        from ..runs.compare.comparison import Comparison
        from ..runs.recipes.recipe import Recipe
        from ..runs.train.train import train

    comparison = Comparison.load(recipe, settings)
    if comparison is not None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise _compares(recipe)
        from ..runs.compare.compare import compare

        folder = out or Path("runs") / comparison.name
        for name in comparison.variants:
            consent.remember(folder / name, comparison.variant(name).imports)
        return _end_comparison(
            compare(comparison, folder, resume=resume, overwrite=overwrite, device=device, console=console())
        )
    loaded = Recipe.load(recipe, settings)
    folder = out or _folder(recipe, loaded)
    consent.remember(folder, loaded.imports)
    result = train(
        loaded,
        folder,
        resume=resume,
        overwrite=overwrite,
        device=device,
        console=console(),
        command=_command(recipe, settings, folder, device),
        callbacks=[_say_threads] if verbose else (),
    )
    if _is_rank() and os.environ.get("RANK") != "0":
        return 0 if result.evaluation is not None else INTERRUPTED
    return _end_run(result)


def _draw_ahead(recipe: str, settings: Sequence[str]) -> None:
    """Start drawing the tokenizer's training texts for a recipe that comes with qkv, before PyTorch is imported."""
    from ..runs.recipes.packaged import packaged

    if recipe not in packaged():
        return
    from ..core import yamls
    from ..data import ahead
    from ..data.source import Source
    from ..runs.recipes import overrides

    with warnings.catch_warnings(), suppress(ValueError, OSError):  # `Recipe.load` will report them
        warnings.simplefilter("ignore")
        tree = overrides.apply(yamls.load(packaged()[recipe], name=recipe), settings)
        if isinstance(tree.get("data"), dict):
            source = Source.from_dict(tree["data"])
            if source.takes_time and not _is_kept(source, tree.get("tokenizer")):
                ahead.begin(source)


def _is_kept(source: Source, tokenizer: Any) -> bool:
    """Whether an earlier training has kept the tokenizer of these texts."""
    from ..data.tokenizers.training.spec import TokenizerSpec
    from ..runs.train.kept_tokenizer import is_kept

    return isinstance(tokenizer, dict) and is_kept(source, TokenizerSpec.from_dict(tokenizer))


def _say_threads(record: Mapping[str, Any]) -> None:
    from ..training.threads import sentence

    if record.get("event") == "threads":
        echo(sentence(record), err=True)


def _folder(recipe: str, loaded: Recipe) -> Path:
    """The directory of a run by default: its own if it continues, else one in `runs`."""
    from ..io.directories.layout import RECIPE
    from ..runs.recipes.packaged import packaged

    is_run = recipe not in packaged() and (Path(recipe) / RECIPE).is_file()
    return Path(recipe) if is_run else Path("runs") / loaded.name


def _is_rank() -> bool:
    """Whether this process was started as one of several ranks."""
    if "WORLD_SIZE" not in os.environ:
        return False
    from ..training.parallel.world import launched

    return launched()


def _launch(
    recipe: str, settings: list[str], out: Path | None, ranks: int, restarts: int, yes: bool, device: str
) -> int:
    """Run this command line as several ranks. Returns the exit status."""
    from ..core.spec import counted
    from ..runs.compare.comparison import Comparison
    from ..runs.recipes.recipe import Recipe
    from ..training.parallel.launch import Failure, check_count, restarted, threads_of

    if is_data(recipe) and not yes:
        raise ValueError(
            "a recipe is guessed for data only by one process; add --yes, or train the recipe that is shown "
            "without --nproc"
        )
    check_count(ranks, device)  # raises before anything is started, like the next checks
    run = out or Path("runs")
    if not is_data(recipe):
        with warnings.catch_warnings(action="ignore"):  # rank 0 repeats them
            if Comparison.load(recipe, settings) is not None:
                raise _compares(recipe)
            loaded = Recipe.load(recipe, settings)
        loaded.scale.sizes(ranks)
        run = out or _folder(recipe, loaded)
    echo(f"Starting {counted(ranks, 'rank')} of {counted(threads_of(ranks), 'thread')} …")
    outcome, _ = restarted(arguments, ranks, restarts, run)
    if not isinstance(outcome, Failure):
        return outcome
    resume = "" if outcome.status == USER else "; continue from the last save with the same command and --resume"
    echo(f"qkv: {outcome}{resume}", err=True)
    return USER if outcome.status == USER else 1


def _compares(recipe: str) -> ValueError:
    return ValueError(
        f"{recipe} compares several models, and one process trains them all; start it without --nproc or torchrun"
    )


def _command(recipe: str, settings: list[str], folder: Path, device: str) -> str:
    """The command that trains this, ready to be pasted into a shell."""
    from ..runs.recipes import imports

    modules = [word for name in imports.from_command_line for word in ("--import", name)]
    options = ["--out", str(folder), *([] if device == "auto" else ["--device", device])]
    return shlex.join(["qkv", *modules, "train", recipe, *settings, *options, *_ranks()])


def _ranks() -> list[str]:
    """The option that starts as many local ranks again, in a process that is one of them."""
    from ..training.parallel.launch import launched_here

    return ["--nproc", os.environ["WORLD_SIZE"]] if _is_rank() and launched_here() else []


def _end_comparison(result: Compared) -> int:
    """Print where a comparison is. Returns the exit status."""
    if result.report is None:
        echo(f"Interrupted; the comparison is in {result.folder}. Continue with the same command and --resume.")
        return INTERRUPTED
    echo(f"The comparison is in {result.folder}; open {result.report} in a browser.")
    return 0


def _end_run(result: Trained) -> int:
    """Print the evaluation of a run, and where it is. Returns the exit status."""
    from ..runs.recipes.recipe import argument_of
    from ..training.parallel.launch import launched_here
    from .results import show_evaluation

    if result.evaluation is None:
        if _is_rank() and not launched_here():
            echo("Continue with the same command and --resume.")
        else:
            echo(f"Continue with: {shlex.join(['qkv', 'train', argument_of(result.folder), *_ranks(), '--resume'])}")
        echo(f"What it learned so far: open {result.report} in a browser.")
        return INTERRUPTED
    show_evaluation(result.evaluation)
    echo(f"The run is in {result.folder}" + (f"; open {result.report} in a browser." if result.report else "."))
    return 0
