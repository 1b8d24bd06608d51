"""Runs of `qkv`, each in a process of its own that is forked from one that has imported PyTorch, and so starts soon."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

PRELOADED = ["qkv.experiments.train", "qkv.inference.run", "qkv.cli.app", "typer.main"]


def run_command(
    arguments: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    path: Sequence[Path] = (),
    answer: str | None = None,
    timeout: float = 200,
) -> subprocess.CompletedProcess[str]:
    """`qkv ARGUMENTS` in a new process: in a directory, with more of an environment, and folders first on Python's path.

    With an `answer` on its standard input the command believes that it has a terminal.
    """
    context = multiprocessing.get_context(
        "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else None
    )
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "in").write_text(answer or "", encoding="utf-8")
        told = (
            list(arguments),
            str(cwd),
            dict(environment or {}),
            [str(part) for part in path],
            answer is not None,
            folder,
        )
        process = context.Process(target=_run, args=told)
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(list(arguments), timeout)
        out, err = (Path(folder, name).read_text(encoding="utf-8", errors="replace") for name in ("out", "err"))
    return subprocess.CompletedProcess(list(arguments), process.exitcode, out, err)


def _run(
    arguments: list[str], cwd: str, environment: dict[str, str], path: list[str], terminal: bool, folder: str
) -> None:
    """The child: standard streams are files of `folder`."""
    for number, name, mode in ((0, "in", os.O_RDONLY), (1, "out", os.O_WRONLY), (2, "err", os.O_WRONLY)):
        os.dup2(os.open(Path(folder, name), mode | os.O_CREAT), number)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    os.chdir(cwd)
    os.environ.update(environment)
    sys.path[:0] = path
    sys.argv = ["qkv", *arguments]
    if terminal:
        sys.stdin.isatty = sys.stderr.isatty = lambda: True  # type: ignore[method-assign]
    from qkv.cli import main

    status = main(arguments)
    sys.stdout.flush()
    sys.exit(status)
