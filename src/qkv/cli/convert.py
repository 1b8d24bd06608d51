"""`qkv convert`: convert a model between the Hub's format, qkv's own and a file of weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .say import echo

FORMATS = ("hub", "qkv", "safetensors")


def convert(
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="A run, a directory in the Hub's format, or a name on the Hub.")
    ],
    target: Annotated[Path, typer.Argument(metavar="DST", help="The directory to write, or a .safetensors file.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="hub|qkv|safetensors", help="The format. [default: hub if a Hub family matches, else qkv]"
        ),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="The dtype, such as bfloat16. [default: the file's]")
    ] = None,
    revision: Annotated[str | None, typer.Option("--revision", help="Branch, tag or commit on the Hub.")] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Also read pickled weights (only tensors are loaded from them).")
    ] = False,
    max_shard_size: Annotated[
        str,
        typer.Option("--max-shard-size", metavar="SIZE", help="Maximum size of a weight file in the Hub's format."),
    ] = "5GB",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing model.")] = False,
) -> None:
    """Convert a model to the Hub's format, to qkv's own, or to a file of weights."""
    import warnings

    if to is not None and to not in FORMATS:
        from ..core.spec import nearest

        raise ValueError(f"there is no format {to!r}; {nearest(to, FORMATS)}")
    _check_target(target, is_file=to == "safetensors", overwrite=overwrite)
    from ..inference.run import load

    run = load(source, "cpu", dtype=dtype, revision=revision, allow_pickle=allow_pickle)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if to == "safetensors":
            from ..training.checkpoints.weights import model_tensors, replace_tensors

            target.parent.mkdir(parents=True, exist_ok=True)
            replace_tensors(target, model_tensors(run.model))
        else:
            run.save(target, to=to, max_shard_size=max_shard_size)  # type: ignore[arg-type]
    for warning in caught:
        echo(str(warning.message), err=True)
    echo(f"{target}: {run.model.spec.n_parameters:,} parameters")


def _check_target(target: Path, *, is_file: bool, overwrite: bool) -> None:
    """Raise ValueError if the target has the wrong form, or exists and may not be replaced."""
    if is_file != (target.suffix == ".safetensors"):
        raise ValueError(
            f"--to safetensors writes one file, NAME.safetensors, and the other formats directories; not {target}"
        )
    exists = target.exists() if is_file else target.is_dir() and any(target.iterdir())
    if target.is_file() and not is_file:
        raise ValueError(f"{target} is a file; a model is a directory")
    if exists and not overwrite:
        raise ValueError(f"{target} already exists; choose another target, or replace it with --overwrite")
