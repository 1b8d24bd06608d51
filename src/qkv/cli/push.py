"""`qkv push`: upload a model to the Hugging Face Hub."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import RunPath
from .say import echo


def push(
    run: RunPath,
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The repository on the Hub.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    revision: Annotated[
        str | None,
        typer.Option("--revision", "--branch", metavar="BRANCH", help="The branch, created if needed. [default: main]"),
    ] = None,
    message: Annotated[str | None, typer.Option("--message", "--commit-message", help="Message of the commit.")] = None,
    license: Annotated[
        str | None, typer.Option("--license", metavar="ID", help="For the model card, such as apache-2.0.")
    ] = None,
    language: Annotated[
        list[str] | None,
        typer.Option(
            "--language",
            metavar="CODE",
            help="For the model card, such as de; repeat it for several. [default: the data's]",
        ),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="The dtype, such as bf16 or bfloat16. [default: the file's]")
    ] = None,
    max_shard_size: Annotated[
        str, typer.Option("--max-shard-size", metavar="SIZE", help="Maximum size of a weight file.")
    ] = "5GB",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write and check everything, show what would be sent, and send nothing.")
    ] = False,
) -> None:
    """Upload a model to the Hugging Face Hub, with a model card, in one commit.

    It uploads the files that `qkv convert RUN DIR --to hub` writes. The token comes from `hf auth login` or HF_TOKEN.
    Files of an earlier model in the repository are replaced; a README.md that somebody wrote or edited there stays.
    """
    from ..runs.inference.run import load

    loaded = load(str(run), "cpu", dtype=dtype)
    done = loaded.push(
        repository,
        private=private,
        revision=revision,
        message=message,
        license=license,
        languages=language or (),
        max_shard_size=max_shard_size,
        dry_run=dry_run,
    )
    for file, size in done.files.items():
        echo(f"{size:>15,}  {file}")
    if done.commit is None:
        total = sum(done.files.values())
        echo(f"{total:,} bytes would go to the branch {done.revision} of {done.repository}; nothing was sent")
        return
    if done.removed:
        echo(f"removed: {', '.join(done.removed)}")
    if done.kept_card:
        echo(f"README.md of {done.repository} was not written by qkv, or was edited, and stays as it is", err=True)
    echo(str(done.url))
