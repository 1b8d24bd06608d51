"""The command-line reference: every command with its arguments, options and an example, from the parser itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from .docstrings import table

ROOT = Path(__file__).parents[3]
_BRACKETS = re.compile(r"\[(?=default|required|x[><])")
_NOUNS = {"generate": "generation"}  # pages whose name is not the command
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "docs" / "tour" / "index.md"]


def page() -> str:
    parts = ["# Command line", "`qkv COMMAND --help` prints the same in a terminal."]
    parts.append(_section(_group(), ("qkv",), 2))
    for path, command in all_commands():
        parts.append(_section(command, ("qkv", *path), 1 + len(path)))
    return "\n\n".join(parts) + "\n"


@cache
def _group() -> Any:
    import typer

    from qkv.cli.app import app

    return typer.main.get_command(app)


def all_commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and subcommand by the words after `qkv`."""
    yield from _below(_group(), ())


def _below(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    import typer

    for name in group.list_commands(typer.Context(group)):
        command = group.get_command(typer.Context(group), name)
        yield (*path, name), command
        if hasattr(command, "list_commands"):
            yield from _below(command, (*path, name))


def example(path: tuple[str, ...]) -> tuple[str, Path | None] | None:
    """A documented call of a command with the page that shows it, from the page of its name if there is one. A command that
    takes no argument is its own example."""

    def nearness(item: tuple[str, Path]) -> tuple[bool, int]:
        return item[1].stem not in (path[-1], path[0], f"{path[0]}s", _NOUNS.get(path[0])), len(item[0])

    found = [item for item in _documented() if _called(item[0]) == path]
    if found:
        return min(found, key=nearness)
    command = dict(all_commands())[path]
    needs = [one for one in command.params if one.param_type_name == "argument" and one.required]
    return None if needs or hasattr(command, "list_commands") else (" ".join(("qkv", *path)), None)


def _called(line: str) -> tuple[str, ...]:
    """The command that a line calls, with its subcommand: of a group whose name may be left out, the one that is meant."""
    words = _words(line)[1:]
    command = _group().get_command(None, words[0]) if words else None
    if not hasattr(command, "list_commands"):
        return tuple(words[:1])
    if len(words) > 1 and words[1] in command.commands:
        return tuple(words[:2])
    import typer

    context = typer.Context(command)
    try:
        command.parse_args(context, words[1:])
    except Exception:  # a call with arguments that only make sense where it is made
        return tuple(words[:1])
    return words[0], context._protected_args[0]


@cache
def _documented() -> tuple[tuple[str, Path], ...]:
    """Every call of qkv in a block of the documents, all of which are tested, with its page."""
    found = []
    for path in PAGES:
        for block in re.findall(r"^```\w*\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", "\0").splitlines():
                line = re.sub(r"\s+#.*", "", line).replace("\0", "\\\n").removeprefix("$ ")
                if line.startswith("qkv "):
                    found.append((line, path))
    return tuple(found)


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line.replace("\\\n", " "))
    except ValueError:
        return line.split()


def _section(command: Any, words: tuple[str, ...], level: int) -> str:
    import typer

    name = " ".join(words)
    context = typer.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    heading = f"{'#' * max(level, 2)} {name} {{ #{'-'.join(words)} }}"
    parts = [heading, f"```text\n{usage}\n```", _help(command)]
    shown = example(words[1:]) if len(words) > 1 else None
    if shown is not None:
        line, path = shown
        where = "" if path is None else f"\n\nFrom [{_title(path)}](../{path.relative_to(ROOT / 'docs').as_posix()})."
        parts.append(f"```sh\n{line}\n```{where}")
    parts += [_table(command, context, kind) for kind in ("argument", "option")]
    return "\n\n".join(part for part in parts if part)


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").split("# ", 1)[1].splitlines()[0]


def _help(command: Any) -> str:
    return re.sub(r"\n(?=\S)", "\n", (command.help or "").strip())


def _table(command: Any, context: Any, kind: str) -> str:
    rows = []
    for parameter in command.params:
        if parameter.param_type_name != kind or getattr(parameter, "hidden", False):
            continue
        rows.append((_names(parameter, context), _about(parameter, context)))
    return table((f"{kind}s", ""), rows)


def _names(parameter: Any, context: Any) -> str:
    """How an argument or an option is written: `--out DIR`."""
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    spelled, _ = parameter.get_help_record(context)
    return f"`{spelled}`"


def _about(parameter: Any, context: Any) -> str:
    """What the parser says of a parameter, its default included."""
    if parameter.param_type_name == "argument":
        return (parameter.help or "").strip()
    _, text = parameter.get_help_record(context)
    return _BRACKETS.sub(r"\\[", text.strip())
