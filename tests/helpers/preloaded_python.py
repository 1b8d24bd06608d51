"""A stand-in for `python` in which PyTorch and qkv are already imported: each program is a fork of one process.

`python()` returns the start of a command line; `-c CODE`, `-m MODULE` or the path of a script follow. The program has
its own process, environment, directory and standard streams, and its interpreter shuts down normally. It behaves like a
program of `sys.executable`, but starts without the seconds of importing. Tests of imports need `sys.executable`.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import types
from pathlib import Path

CLIENT = Path(__file__).with_name("preloaded_client.py")
LONGEST = 290  # seconds that a program may run, a little less than the timeout of a test


def python() -> list[str]:
    """The beginning of a command line that runs a program like `sys.executable` does."""
    if not sys.platform.startswith("linux"):  # a fork of a process with PyTorch is safe only there
        return [sys.executable]
    return [sys.executable, "-I", "-S", str(CLIENT), server()]


@functools.cache
def server() -> str:
    """Start the process that forks, once for each process of the tests; return the path of its socket."""
    folder = tempfile.mkdtemp(prefix="qkv-python-")
    address = str(Path(folder, "socket"))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OMP_NUM_THREADS": "1",
    }
    process = subprocess.Popen(
        [sys.executable, __file__, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert process.stdin is not None and process.stdout is not None

    def end() -> None:
        process.stdin.close()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    assert process.stdout.readline() == b"ready\n"
    return address


def program(folder: Path) -> Path:
    """Write a program to use in place of `sys.executable`."""
    file = folder / "python"
    file.write_text(f'#!/bin/sh\nexec {shlex.join(python())} "$@"\n', encoding="utf-8")
    file.chmod(0o755)
    return file


# -- in the process that forks --------------------------------------------------------------------------------------


def serve(address: str) -> None:
    """Fork for each connection, until standard input ends."""
    path = list(sys.path[1:])
    preload()
    os.fsync = lambda file: None  # as in conftest.py
    gc.freeze()  # the children's garbage collections leave the shared pages alone
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # finished children leave no zombies
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            ready, _, _ = select.select([listener, 0], [], [])
            if 0 in ready:
                return
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                oversee(connection, path)
                return
            connection.close()


def preload() -> None:
    """Import qkv's modules, except those that need Triton or an optional library."""
    import torch._dynamo  # noqa: F401, what predictions and compiled models import at their first use

    import qkv

    for module in pkgutil.walk_packages(qkv.__path__, "qkv."):
        if not module.name.endswith("__main__") and ".flash" not in module.name:
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError:
                continue


def oversee(connection: socket.socket, path: list[str]) -> None:
    """Run the requested program in a fork and send its status back. Returns only in the fork, after the program."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, streams, _, _ = socket.recv_fds(connection, 1, 3)  # one byte brings the open streams
    while not message.endswith(b"\n"):
        message += connection.recv(1 << 20)
    request = json.loads(message)
    program = os.fork()
    if program == 0:
        connection.close()
        run(request, dict(zip(request["streams"], streams, strict=True)), path)
        return
    _, status = os.waitpid(program, 0)
    connection.sendall(json.dumps(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def run(request: dict, streams: dict[int, int], path: list[str]) -> None:
    """Take over the streams, the directory and the environment of a request, and run its program."""
    signal.alarm(LONGEST)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for stream, (name, mode) in enumerate([("stdin", "r"), ("stdout", "w"), ("stderr", "w")]):
        opened = None
        if stream in streams:
            os.dup2(streams[stream], stream)
            os.close(streams[stream])
            errors = "backslashreplace" if name == "stderr" else None
            lines = 1 if name == "stderr" or os.isatty(stream) else -1
            opened = os.fdopen(stream, mode, encoding="utf-8", errors=errors, buffering=lines, closefd=False)
        else:
            os.close(stream)
        setattr(sys, name, opened)
        setattr(sys, f"__{name}__", opened)
    extra = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    kind, *rest = request["arguments"]
    sys.path[:] = dict.fromkeys([*extra, *path])
    if kind == "-c":
        code, *arguments = rest
        sys.argv, main = ["-c", *arguments], types.ModuleType("__main__")
        sys.path.insert(0, "")
        sys.modules["__main__"] = main
        exec(compile(code, "<string>", "exec"), main.__dict__)
    elif kind == "-m":
        sys.argv = rest
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [kind, *rest]
        sys.path.insert(0, str(Path(kind).resolve().parent))
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1])
