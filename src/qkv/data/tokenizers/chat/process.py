"""The child process that runs chat templates: started on first use, shared, and replaced if a template is stopped."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from .sandbox import MOST_MEMORY, MOST_SECONDS, READY

LARGEST_REQUEST = 64 << 20  # bytes of JSON
NEEDED = ("jinja2", "markupsafe")
WATCHED = not sys.platform.startswith("linux")  # other systems ignore a limit of memory that a process sets for itself
INTERVAL = 0.01  # seconds between looks at the memory of a process that is watched
BEGIN = "import runpy, sys; sys.path += sys.argv[2:]; runpy.run_path(sys.argv[1], run_name='__main__')"


class Child:
    """The process, with a lock: one request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: dict[str, Any]) -> str:
        """Return the text that a template renders. Raises ValueError if it fails."""
        try:
            line = json.dumps(request).encode("ascii") + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"a conversation is made of texts, numbers, lists and mappings: {error}") from None
        if len(line) > LARGEST_REQUEST:
            raise ValueError(
                f"a conversation of {len(line):,} bytes is too long for a chat template; the limit is {LARGEST_REQUEST:,}"
            )
        with self._lock:
            answer = self._answer(line)
        if "error" in answer:
            raise ValueError(answer["error"])
        return str(answer["text"])

    def _answer(self, line: bytes) -> dict[str, Any]:
        process = self._process
        if process is None or process.poll() is not None:
            process = self._process = _begin()
        assert process.stdin is not None and process.stdout is not None
        try:
            with _watched(process) if WATCHED else contextlib.nullcontext():
                with contextlib.suppress(BrokenPipeError):  # the process has ended, so `readline` returns nothing
                    process.stdin.write(line)
                    process.stdin.flush()
                reply = process.stdout.readline()
            answer: dict[str, Any] = json.loads(reply) if reply.endswith(b"\n") else {"error": TOO_MUCH, "last": True}
        except BaseException:  # also on Ctrl-C: the next request must not receive this answer
            self._end()
            raise
        if "last" in answer:
            self._end()
        return answer

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def forget(self) -> None:
        """Forget the child after a fork, because it belongs to the parent process."""
        self._lock = threading.Lock()
        self._process = None


TOO_MUCH = (
    f"the chat template takes more than {MOST_SECONDS} seconds of computing, or more than {MOST_MEMORY >> 20} MiB of "
    "memory, so it was stopped"
)


@contextlib.contextmanager
def _watched(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill the process as soon as it holds more than `MOST_MEMORY` beyond what it began with."""
    done = threading.Event()

    def watch() -> None:
        with contextlib.suppress(psutil.Error):  # it has ended
            child = psutil.Process(process.pid)
            most = child.memory_info().rss + MOST_MEMORY
            while not done.wait(INTERVAL):
                if child.memory_info().rss > most:
                    process.kill()
                    return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _begin() -> subprocess.Popen[bytes]:
    """Start the process, isolated from the user's Python settings and from all packages but Jinja.

    Raises ValueError if it doesn't start.
    """
    specs = [importlib.util.find_spec(name) for name in NEEDED]
    folders = {str(Path(spec.origin).parent.parent) for spec in specs if spec is not None and spec.origin}
    script = Path(__file__).with_name("sandbox.py")
    command = [sys.executable, "-I", "-S", "-c", BEGIN, str(script), *sorted(folders)]
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise ValueError(f"the process that chat templates run in could not be started: {error}") from None
    assert process.stdout is not None
    if process.stdout.readline() != READY:
        process.kill()
        process.communicate()
        raise ValueError(f"the process that chat templates run in ended before its first answer: {' '.join(command)}")
    return process


CHILD = Child()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=CHILD.forget)
