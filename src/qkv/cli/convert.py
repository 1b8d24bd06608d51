"""`qkv convert`: convert a model between the Hub's format, qkv's own, and the formats of other programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ..core.device import short_name
from .say import console, echo, progress_bar

if TYPE_CHECKING:
    from ..runs.inference.run import Run


class Settings(NamedTuple):
    """The options of formats."""

    max_shard_size: str
    type: str | None
    int8: bool
    aot: bool | None
    overwrite: bool  # checked again when the new model takes its place, as another process may have saved one


class OutputFormat(NamedTuple):
    """A format to write. `suffix`: that of its one file; "" for a directory.

    `write(run, target, settings)` returns a line to print, or None for the number of parameters. `fixed` is the only
    dtype of a format's weights, if there is one; `options` are the options that only some formats have.
    """

    suffix: str
    write: Callable[[Run, Path, Settings], str | None]
    fixed: str | None = None
    options: tuple[str, ...] = ()


def _hub(run: Run, target: Path, settings: Settings) -> None:
    run.save(target, to="hub", max_shard_size=settings.max_shard_size, overwrite=settings.overwrite)


def _qkv(run: Run, target: Path, settings: Settings) -> None:
    run.save(target, to="qkv", overwrite=settings.overwrite)


def _usual(run: Run, target: Path, settings: Settings) -> None:
    run.save(target, max_shard_size=settings.max_shard_size, overwrite=settings.overwrite)


def _safetensors(run: Run, target: Path, settings: Settings) -> None:
    from ..core.atomic import make_folder
    from ..training.checkpoints.weights import model_tensors, replace_tensors

    make_folder(target.parent)
    replace_tensors(target, model_tensors(run.model))


def _gguf(run: Run, target: Path, settings: Settings) -> str:
    from ..runs.export.gguf import save

    with progress_bar("writing") as advance:
        save(
            run.model,
            target,
            settings.type,
            tokenizer=run.tokenizer,
            task=run.task,
            origin=run.origin,
            pooling=_pooling(run),
            name=Path(run.name).resolve().stem,
            advance=advance,
        )
    return f"{target}: {run.model.spec.n_parameters:,} parameters, {target.stat().st_size:,} bytes"


def _pooling(run: Run) -> str | None:
    """Return how sentence-transformers' files beside an encoder pool its states. Raises ValueError for other modules."""
    from ..io.directories import sentence_transformers

    settings = None if run.path is None else sentence_transformers.read(run.path, run.allow_pickle)
    if settings is None:
        return None
    left = [module.kind for module in settings.modules if module.kind != "Normalize"]
    if len(settings.poolings) > 1 or left:
        what = f"the modules {', '.join(left)}" if left else f"the poolings {', '.join(settings.poolings)} together"
        raise ValueError(f"GGUF has no way to say {what} of {run.name}; --to hub keeps them")
    return settings.poolings[0]


def _onnx(run: Run, target: Path, settings: Settings) -> str:
    from ..runs.export.onnx import to_onnx

    with _steps() as tell:
        made = to_onnx(run, target, int8=settings.int8, overwrite=settings.overwrite, tell=tell)
    files = ", ".join(f"{name}.onnx" for name in made.graphs)
    said = f"{target}: {files}, {made.size / 1e6:,.1f} MB; outputs differ from qkv's by {made.error:.1e} of the largest"
    if made.float_size is not None and made.float_error is not None:
        said += f" (in float32: {made.float_size / 1e6:,.1f} MB and {made.float_error:.1e})"
    if not made.is_hub:
        said += "; no Hub family matches the model, so config.json is qkv's own: onnxruntime reads the graphs, optimum can't"
    return said


def _torch_export(run: Run, target: Path, settings: Settings) -> str:
    from ..runs.export.torch_export import to_torch_export

    with _steps() as tell:
        made = to_torch_export(run, target, aot=settings.aot, overwrite=settings.overwrite, tell=tell)
    files = ", ".join(f"{name}.pt2" for name in made.graphs)
    compiled = "compiled too" if made.compiled else "not compiled (--aot takes a C++ compiler)"
    return (
        f"{target}: {files}, {compiled}, {made.size / 1e6:,.1f} MB; outputs differ from qkv's by {made.error:.1e} of the "
        "largest"
    )


FORMATS = {
    "hub": OutputFormat("", _hub),
    "qkv": OutputFormat("", _qkv),
    "safetensors": OutputFormat(".safetensors", _safetensors),
    "gguf": OutputFormat(".gguf", _gguf),
    "onnx": OutputFormat("", _onnx, fixed="float32", options=("--int8",)),
    "torch-export": OutputFormat("", _torch_export, options=("--aot", "--no-aot")),
}
"""The formats of `--to`. Writers of formats of other programs are in `qkv.runs.export`."""


def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SRC", help="A run, a directory in the Hub's format, a GGUF file, or a name on the Hub."
        ),
    ],
    target: Annotated[
        Path, typer.Argument(metavar="DST", help="The directory to write, or a file such as NAME.safetensors.")
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="|".join(FORMATS), help="The format. [default: hub if a Hub family matches, else qkv]"
        ),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="The dtype, such as bf16 or bfloat16. [default: the file's]")
    ] = None,
    revision: Annotated[str | None, typer.Option("--revision", help="Branch, tag or commit on the Hub.")] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Also read pickled weights (only tensors are loaded from them).")
    ] = False,
    max_shard_size: Annotated[
        str,
        typer.Option("--max-shard-size", metavar="SIZE", help="Maximum size of a weight file in the Hub's format."),
    ] = "5GB",
    type: Annotated[
        str | None,
        typer.Option(
            "--type", metavar="f32|f16|bf16|q8_0|q4_0", help="The type of matrices in a GGUF file. [default: the dtype]"
        ),
    ] = None,
    int8: Annotated[
        bool,
        typer.Option("--int8", help="With --to onnx: quantize the weights to 8 bits, and activations at run time."),
    ] = False,
    aot: Annotated[
        bool | None,
        typer.Option(
            "--aot/--no-aot",
            help="With --to torch-export: also compile with AOTInductor. [default: if there is a C++ compiler]",
        ),
    ] = None,
    dequantize: Annotated[
        bool, typer.Option("--dequantize", help="Write quantized weights in full precision, which can be trained.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing model.")] = False,
) -> None:
    """Convert a model to the Hub's format, to qkv's own, to a file of weights, or for other programs."""
    import warnings

    form = _format(to)
    if type is not None and to != "gguf":
        raise ValueError(f"--type {type} is for --to gguf; the other formats take --dtype")
    _check_options(to, form, dtype, {"--int8": int8, "--aot": aot is True, "--no-aot": aot is False})
    _check_target(target, to, form.suffix, overwrite=overwrite)
    _check_source(source, target)
    from ..runs.inference.run import load

    run = load(source, "cpu", dtype=dtype, revision=revision, allow_pickle=allow_pickle)
    run = run.dequantize() if dequantize else run
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        said = form.write(run, target, Settings(max_shard_size, type, int8, aot, overwrite))
    for warning in caught:
        echo(str(warning.message), err=True)
    echo(said or f"{target}: {run.model.spec.n_parameters:,} parameters")


def _format(to: str | None) -> OutputFormat:
    """The format of a name. Raises ValueError for an unknown one."""
    if to is None:
        return OutputFormat("", _usual)
    if to not in FORMATS:
        from ..core.spec import nearest

        raise ValueError(f"there is no format {to!r}; {nearest(to, FORMATS)}")
    return FORMATS[to]


def _check_options(to: str | None, form: OutputFormat, dtype: str | None, given: dict[str, bool]) -> None:
    """Raise ValueError for an option that a format doesn't have, or a dtype that its weights can't have."""
    for option in (name for name, value in given.items() if value and name not in form.options):
        others = " or ".join(f"--to {name}" for name, other in FORMATS.items() if option in other.options)
        raise ValueError(f"{option} is for {others}, and the format is {to or 'hub or qkv'}; leave it out")
    if form.fixed is not None and short_name(dtype) not in (None, short_name(form.fixed)):
        raise ValueError(f"weights in the format {to} are {form.fixed}, not {dtype}; leave --dtype out")


@contextmanager
def _steps() -> Iterator[Callable[[str], None]]:
    """Show the present step and how long it has taken, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting")
        yield lambda step: bar.update(task, description=step)


def _check_target(target: Path, to: str | None, suffix: str, *, overwrite: bool) -> None:
    """Raise ValueError if the target has the wrong form, or exists and may not be replaced."""
    files = {form.suffix: name for name, form in FORMATS.items() if form.suffix}
    if suffix and target.suffix != suffix:
        raise ValueError(f"--to {to} writes one file, NAME{suffix}, and not {target}; name one")
    if not suffix and target.suffix in files:
        form = files[target.suffix]
        raise ValueError(
            f"--to {form} writes one file, NAME{target.suffix}, and other formats directories; not {target}"
        )
    if suffix:
        from ..io.directories.layout import claim_output

        claim_output(target, overwrite)
        return
    if target.is_file():
        raise ValueError(f"{target} is a file; a model is a directory")
    if target.is_dir() and any(target.iterdir()) and not overwrite:
        raise ValueError(f"{target} already exists; replace it with --overwrite, or choose another name")


def _check_source(source: str, target: Path) -> None:
    """Raise ValueError if the target is the source, or one of its files."""
    if not Path(source).exists():
        return  # a name on the Hub
    place, whole = target.resolve(), Path(source).resolve()
    if place == whole or (place.exists() and place.parent == whole):
        raise ValueError(
            f"{target} is {'' if place == whole else 'part of '}the model that is converted; choose another target"
        )
