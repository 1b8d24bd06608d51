"""The commands, in the order of `qkv --help`. Each is imported when it is called; none imports slow modules at its top."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from . import allocator, completion, consent, waiting

MARKUP: Any = "markdown"

# Where the function, or the group of subcommands, of each command is: a module of this package and a name in it.
COMMANDS = {
    "demo": ("train", "demo"),
    "train": ("train", "train"),
    "eval": ("evaluate", "evaluate"),
    "report": ("report", "report"),
    "ablate": ("ablate", "ablate"),
    "tune": ("tune", "tune"),
    "reproduce": ("reproduce", "reproduce"),
    "generate": ("generate", "generate"),
    "translate": ("generate", "generate"),
    "chat": ("chat", "chat"),
    "score": ("score", "score"),
    "embed": ("score", "embed"),
    "classify": ("classify", "classify"),
    "fill": ("fill", "fill"),
    "predict": ("predict", "predict"),
    "look": ("look", "look"),
    "prune": ("prune", "prune"),
    "quantize": ("quantize", "quantize"),
    "scaling": ("scaling", "app"),
    "tokenizer": ("tokenizer", "app"),
    "vectors": ("vectors", "app"),
    "convert": ("convert", "convert"),
    "list": ("catalog", "list_"),
    "show": ("show", "show"),
    "explain": ("explain", "explain"),
    "tour": ("tour", "tour"),
    "cost": ("cost_commands", "app"),
    "doctor": ("doctor", "doctor"),
}


class Commands(TyperGroup):
    """The commands of `COMMANDS`; the module of one is imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            module, name = COMMANDS[cmd_name]
            imported = import_module(f".{module}", __package__)
            found = getattr(imported, name)
            if not isinstance(found, typer.Typer):
                function, found = found, typer.Typer(add_completion=False, rich_markup_mode=MARKUP)
                found.command(cmd_name, help=getattr(imported, f"{cmd_name}_help", None))(function)
            self.commands[cmd_name] = typer.main.get_command(found)
            self.commands[cmd_name].name = cmd_name
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in COMMANDS:  # the message names the nearest of the commands that are imported
            for name in COMMANDS:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="qkv",
    cls=Commands,
    help="Train Transformers on your data and use them.",
    epilog="`qkv demo` trains a small translator in five minutes. QKV_DEBUG=1 shows tracebacks.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=MARKUP,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"qkv {version('qkv')}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    install_completion: Annotated[
        str | None,
        typer.Option(
            metavar="bash|zsh|fish",
            callback=completion.install_script,
            is_eager=True,
            help="Set up completion of commands, options and settings in a shell, and exit.",
        ),
    ] = None,
    print_completion: Annotated[
        str | None,
        typer.Option(
            metavar="bash|zsh|fish",
            callback=completion.print_script,
            is_eager=True,
            help="Print the script that completes them in a shell, and exit.",
        ),
    ] = None,
    system_allocator: Annotated[
        bool,
        typer.Option("--system-allocator", help="Return freed memory to the system at once: slower, but uses less."),
    ] = False,
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import a module that defines parts: `my_package.parts` or `parts.py`; repeatable.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Import the modules that a recipe or a run names without asking.")
    ] = False,
) -> None:
    if "WORLD_SIZE" in os.environ and not os.environ.get("QKV_DEBUG"):
        # A connection that fails is one sentence (`parallel`), without the C++ stack traces that PyTorch logs.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    allocator.bound_kernels()
    waiting.sleep_where_cores_are_shared()
    if not system_allocator:
        allocator.keep_pages()
    consent.set_up(context, imports or (), yes)
