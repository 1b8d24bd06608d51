"""What `qkv ablate`, `qkv tune` and `qkv scaling` share: the recipe, resuming or replacing a study, and interruptions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...cli import completion
from ...cli.errors import INTERRUPTED
from ...cli.say import echo

Recipe = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A recipe or a YAML file.", autocompletion=completion.recipes)
]


def resume_or_overwrite(resume: bool, overwrite: bool, kind: str) -> None:
    """Raise ValueError if both options are given. kind: the kind of study with its article, such as `an ablation`."""
    if resume and overwrite:
        raise ValueError(f"--resume continues {kind} and --overwrite replaces it; give one of them")


def interrupted(kind: str, folder: Path) -> int:
    """Print how to continue an interrupted study. Returns the exit status."""
    echo(f"Interrupted; the {kind} is in {folder}. Continue with the same command and --resume.", err=True)
    return INTERRUPTED
