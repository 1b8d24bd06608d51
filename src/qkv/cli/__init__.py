"""The command line: `qkv` and `python -m qkv`. Every command imports what it needs when it runs, so help is quick."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

INTERRUPTED = 130  # the shell's status of a program that Ctrl-C ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    A user's mistake (ValueError, OSError, wrong usage) is one sentence on standard error and status 2; with QKV_DEBUG=1
    it is the traceback as well. Anything else that is raised is a bug of ours and says so, with status 1.
    """
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: print(f"Warning: {message}", file=sys.stderr)
        return _run(argv)


def _run(argv: Sequence[str] | None) -> int:
    import typer

    from .app import app
    from .errors import describe

    command = typer.main.get_command(app)
    try:
        with warnings.catch_warnings():
            _say_warnings()
            status = command(args=None if argv is None else list(argv), prog_name="qkv", standalone_mode=False)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has left, as `head` does: nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if os.environ.get("QKV_DEBUG"):
            import traceback

            traceback.print_exc()
        status, text = describe(error)
        typer.secho("qkv: ", fg=typer.colors.RED, bold=True, err=True, nl=False)
        typer.echo(text, err=True)
        return status
    if status == INTERRUPTED:
        typer.echo("qkv: interrupted", err=True)
    return status if isinstance(status, int) else 0


def _say_warnings() -> None:
    """Show our own warnings as sentences, without the place in the code that they come from."""
    import typer

    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **rest: Any) -> None:
        if category.__module__.startswith("qkv."):
            typer.echo(f"qkv: {message}", err=True)
        else:
            usual(message, category, *place, **rest)

    warnings.showwarning = show
