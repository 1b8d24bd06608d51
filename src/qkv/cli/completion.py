"""Shell completion: `qkv --print-completion SHELL`, and the values that arguments and options complete to."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Any

import typer

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_QKV_COMPLETE"  # set by the scripts when they ask for completions


def set_up() -> None:
    """Answer the shell's request for completions, if this is one, when the command is parsed."""
    if _VARIABLE in os.environ:
        from typer.completion import completion_init

        completion_init()


def print_script(shell: str | None) -> None:
    """Print the script that completes commands in a shell, and exit."""
    if shell is None:
        return
    if shell not in SHELLS:
        raise ValueError(f"there is no completion for the shell {shell!r}; give one of {', '.join(SHELLS)}")
    from typer.completion import get_completion_script

    from .say import echo

    echo(get_completion_script(prog_name="qkv", complete_var=_VARIABLE, shell=shell))
    raise typer.Exit


def recipes(incomplete: str) -> list[str]:
    """The recipes that come with qkv, and recipe files and directories."""
    names = sorted(item.name for item in files("qkv.recipes").iterdir() if item.name.endswith(".yaml"))
    return [*_beginning(incomplete, (name.removesuffix(".yaml") for name in names)), *_paths(incomplete)]


def recipes_and_presets(incomplete: str) -> list[str]:
    """Recipes, presets, and recipe files and directories."""
    from ..families import presets

    return [*recipes(incomplete), *_beginning(incomplete, sorted(presets()))]


def devices(incomplete: str) -> list[str]:
    return _beginning(incomplete, ("auto", "cpu", "cuda", "mps"))


def precisions(incomplete: str) -> list[str]:
    return _beginning(incomplete, ("auto", "fp32", "bf16", "fp16"))


def _beginning(incomplete: str, names: Any) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _paths(incomplete: str) -> list[str]:
    """YAML files and directories that begin with the text typed so far."""
    folder, _, start = incomplete.rpartition("/")
    prefix = incomplete[: len(incomplete) - len(start)]
    try:
        items = sorted(Path(prefix or folder or ".").expanduser().iterdir())
    except (OSError, RuntimeError):  # no such folder, or the home of an unknown user
        return []
    matches = [item for item in items if item.name.startswith(start) and (start or not item.name.startswith("."))]
    return [f"{prefix}{item.name}" for item in matches if item.is_dir() or item.suffix in (".yaml", ".yml")]
