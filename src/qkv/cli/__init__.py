"""The command line, one command a file: `qkv` and `python -m qkv`. Commands import what they need when they run."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

UNHEARD = 1  # where the reader of a pipe has left, as `head` does


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
    from .errors import INTERRUPTED, describe
    from .say import echo

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # what an encoding lacks ends no command
    command = typer.main.get_command(app)
    try:
        with _warnings_in_a_line():
            status = command(args=None if argv is None else list(argv), prog_name="qkv", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()  # so that a full disk or a closed pipe is met here
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError:  # nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNHEARD
    except SystemExit as stop:  # Typer and Rich end so where they met the closed pipe
        return stop.code if isinstance(stop.code, int) else UNHEARD
    except Exception as error:
        if os.environ.get("QKV_DEBUG"):
            import traceback

            traceback.print_exc()
        status, text = describe(error)
        if text:
            typer.secho("qkv: ", fg=typer.colors.RED, bold=True, err=True, nl=False)
            echo(text, err=True)
        return status
    if status == INTERRUPTED:
        echo("qkv: interrupted", err=True)
    return status if isinstance(status, int) else 0


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Warnings as sentences to a user, without the place in the code that they come from."""
    from .say import warn

    def show(message: Warning | str, category: type[Warning], *place: Any, **rest: Any) -> None:
        if category is UserWarning or category.__module__.startswith("qkv."):
            warn(" ".join(str(message).split()))
        else:
            usual(message, category, *place, **rest)

    with warnings.catch_warnings():
        usual, warnings.showwarning = warnings.showwarning, show
        yield
