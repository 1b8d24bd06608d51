"""Shell completion: `qkv --install-completion SHELL`, and the values that arguments and options complete to."""

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
    from .say import echo

    echo(_script(shell), nl=False)
    raise typer.Exit


def install_script(shell: str | None) -> None:
    """Write the script that completes commands into the user's configuration of a shell, and exit."""
    if shell is None:
        return
    script = _script(shell)
    from typer.completion import install

    from ..core.atomic import write_file
    from .say import echo

    _, path = install(shell=shell, prog_name="qkv", complete_var=_VARIABLE)
    write_file(path, script.encode())
    echo(f"Wrote {path}; start a new {shell} to use it.")
    raise typer.Exit


def _script(shell: str) -> str:
    """The script of a shell. Raises ValueError for a shell without one."""
    if shell not in SHELLS:
        raise ValueError(f"there is no completion for the shell {shell!r}; give one of {', '.join(SHELLS)}")
    from typer.completion import get_completion_script

    script = get_completion_script(prog_name="qkv", complete_var=_VARIABLE, shell=shell)
    if shell == "bash":  # a key continues with its value, so no space follows it
        script = script.replace(
            "    return 0\n", "    [[ ${COMPREPLY-} == *[=.] ]] && compopt -o nospace\n    return 0\n"
        )
    return f"{script}\n"


def recipes(incomplete: str) -> list[str]:
    """The recipes that come with qkv, and recipe files and directories."""
    names = sorted(item.name for item in files("qkv.runs.recipes").iterdir() if item.name.endswith(".yaml"))
    return [*_beginning(incomplete, (name.removesuffix(".yaml") for name in names)), *_paths(incomplete)]


def recipes_and_presets(incomplete: str) -> list[str]:
    """Recipes, presets, and recipe files and directories."""
    from ..io.families import presets

    return [*recipes(incomplete), *_beginning(incomplete, sorted(presets()))]


def settings(context: typer.Context, incomplete: str) -> list[str]:
    """Keys of the recipe or preset that a command changes, or values of a key."""
    from ..runs.recipes.completion import complete

    recipe = str(context.params.get("recipe") or context.params.get("name") or "localise")  # which `qkv demo` trains
    others = [word for word in context.params.get("settings") or () if "=" in word]
    words = _bash_words()
    others += [f"{a}={b}" for a, sign, b in zip(words, words[1:], words[2:-1], strict=False) if sign == "="]
    place = next((i for i in (-1, -2) if words[i:][:1] == ["="]), None)  # in `key =`, or in `key = value`
    if place is None:
        return complete(recipe, others, incomplete)
    matches = complete(recipe, others, f"{words[place - 1]}={incomplete}")
    return [match.partition("=")[2] for match in matches]


def _bash_words() -> list[str]:
    """The words up to the one that bash asks for, which takes `key=value` apart; none for another shell."""
    if "COMP_CWORD" not in os.environ:
        return []
    return os.environ.get("COMP_WORDS", "").split("\n")[: int(os.environ["COMP_CWORD"]) + 1]


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
