"""The command line, one command a file: `qkv` and `python -m qkv`. Commands import what they need when they run."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

PIPE_CLOSED = 1  # the status if the reader of a pipe has closed it, as `head` does


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    A user's mistake (ValueError, OSError, wrong usage) is one sentence on standard error and status 2. Any other exception
    is reported as a bug in qkv, with status 1. With QKV_DEBUG=1 the traceback is printed as well.
    """
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: print(f"Warning: {message}", file=sys.stderr)
        try:
            return _run(argv)
        except KeyboardInterrupt:  # while modules are imported, or a message is printed
            print("qkv: interrupted", file=sys.stderr)
            return 130


def _run(argv: Sequence[str] | None) -> int:
    import typer

    from . import completion
    from .app import app
    from .errors import INTERRUPTED, describe
    from .options import arguments
    from .say import echo

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # characters that the encoding lacks are not an error
    command = typer.main.get_command(app)
    completion.set_up()
    _tell_of_compiling()
    arguments[:] = sys.argv[1:] if argv is None else argv
    try:
        with _one_line_warnings():
            status = command(args=None if argv is None else list(argv), prog_name="qkv", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()  # raises here if the disk is full or the pipe is closed
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError:
        _drop_unwritable_output()
        return PIPE_CLOSED
    except SystemExit as stop:  # raised by Typer and Rich if the pipe is closed
        return stop.code if isinstance(stop.code, int) else PIPE_CLOSED
    except Exception as error:
        if os.environ.get("QKV_DEBUG"):
            import traceback

            traceback.print_exc()
        _drop_unwritable_output()
        status, text = describe(error)
        if text and not _left_to_launcher(text, error):
            typer.secho("qkv: ", fg=typer.colors.RED, bold=True, err=True, nl=False)
            echo(text, err=True)
        _end_failed_rank(status)
        return status
    if status == INTERRUPTED:
        echo("qkv: interrupted", err=True)
        _end_failed_rank(INTERRUPTED)
    return status if isinstance(status, int) else 0


def _tell_of_compiling() -> None:
    """Say in a terminal which C++ kernels are compiled: the first command that needs them waits for it."""
    if sys.stderr is None or not sys.stderr.isatty():
        return
    import logging

    handler, logger = logging.StreamHandler(), logging.getLogger("qkv.compiling")
    handler.setFormatter(logging.Formatter("qkv: %(message)s"))
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)


def _left_to_launcher(text: str, error: Exception) -> bool:
    """Whether this process is one of several ranks, and another process prints its message: the launcher of local ranks, or
    rank 0, which raises the same error."""
    if "WORLD_SIZE" not in os.environ:
        return False
    from ..training.parallel.launch import leave_error

    left = leave_error(text, type(error).__name__ == "RankLost", getattr(error, "of_rank", None))
    return left or getattr(error, "said_by_rank_0", False)


def _end_failed_rank(status: int) -> None:
    """End this process at once if it is one of several ranks on GPUs."""
    if "WORLD_SIZE" in os.environ:
        from ..training.parallel.world import World

        World.end_failed(status)


def _drop_unwritable_output() -> None:
    """Drop buffered output that can't be written. Python would try again at its exit, fail, and end with status 120."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Print each warning for the user once, on one line, without its place in the code."""
    from .errors import shortened
    from .say import warn

    said: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *place: Any, **rest: Any) -> None:
        if category is UserWarning or category.__module__.startswith("qkv."):
            text = shortened(" ".join(str(message).split()))
            if text not in said:
                said.add(text)
                warn(text)
        else:
            default(message, category, *place, **rest)

    with warnings.catch_warnings():
        default, warnings.showwarning = warnings.showwarning, show
        yield
