"""`qkv convert`: a model's directory from one library's format into another's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .say import echo

FORMATS = ("hub", "qkv", "safetensors")


def convert(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A run, a directory of the Hub, or a name on the Hub.")],
    target: Annotated[Path, typer.Argument(metavar="DST", help="The directory to write, or a .safetensors file.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="hub|qkv|safetensors", help="The format; by default the Hub's where there is one."
        ),
    ] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="Such as bfloat16; by default the file's own.")] = None,
    revision: Annotated[str | None, typer.Option("--revision", help="Branch, tag or commit on the Hub.")] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read weights that exist as pickles only, as nothing but tensors.")
    ] = False,
    max_shard_size: Annotated[
        str,
        typer.Option(
            "--max-shard-size", metavar="SIZE", help="Weights of the Hub's format in files of at most so much."
        ),
    ] = "5GB",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write over a model that is already there.")] = False,
) -> None:
    """Convert a model: the Hub's format, qkv's own, or the weights alone."""
    import warnings

    if to is not None and to not in FORMATS:
        from ..core.spec import nearest

        raise ValueError(f"there is no format {to!r}; {nearest(to, FORMATS)}")
    _check_free(target, alone=to == "safetensors", overwrite=overwrite)
    from ..inference.run import load

    run = load(source, "cpu", dtype=dtype, revision=revision, allow_pickle=allow_pickle)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if to == "safetensors":
            from ..training.checkpoints.weights import model_tensors, replace_tensors

            target.parent.mkdir(parents=True, exist_ok=True)
            replace_tensors(target, model_tensors(run.model))
        else:
            run.save(target, to=to, max_shard_size=max_shard_size)  # type: ignore[arg-type]
    for warning in said:
        echo(str(warning.message), err=True)
    echo(f"{target}: {run.model.spec.n_parameters:,} parameters")


def _check_free(target: Path, *, alone: bool, overwrite: bool) -> None:
    """That nothing would be written over, nor a file where a directory is meant, before anything is read."""
    if alone != (target.suffix == ".safetensors"):
        raise ValueError(
            f"--to safetensors writes one file, NAME.safetensors, and the other formats directories; not {target}"
        )
    taken = target.exists() if alone else target.is_dir() and any(target.iterdir())
    if target.is_file() and not alone:
        raise ValueError(f"{target} is a file; a model is a directory")
    if taken and not overwrite:
        raise ValueError(f"{target} is already there; choose another place, or --overwrite")
