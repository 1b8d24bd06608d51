"""Servers as processes: `qkv serve`, and any other that answers HTTP."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Thread

import httpx

PATIENCE = 600  # seconds until a server answers; some compile first


@contextmanager
def started_process(runs: list[str], options: list[str]) -> Iterator[tuple[str, int]]:
    """The address of `qkv serve` of some runs, and its process."""
    command = [sys.executable, "-m", "qkv", "serve", *runs, "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"(http://\S+?)/$", line.strip()):
                Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would stop the server
                yield found[1], process.pid
                return
        raise SystemExit(f"{' '.join(command)} did not start")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def started_server(
    command: Sequence[str], url: str, environment: Mapping[str, str], model: str | None = None
) -> Iterator[str]:
    """Run a server until the end of the block, once it lists its models; the first one's name.

    With `model`, a server that doesn't list it, once its `/health` is good.
    Raises ValueError with the last line that it said if it ends or does not answer in time.
    """
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment})
        try:
            yield _ready(process, url, model, time.monotonic() + PATIENCE)
        except _NotStartedError:
            log.seek(0)
            said = log.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise ValueError(f"{command[0]} did not start: {said[-1][:300]}") from None
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


class _NotStartedError(Exception):
    pass


def _ready(process: subprocess.Popen[bytes], url: str, model: str | None, until: float) -> str:
    while process.poll() is None and time.monotonic() < until:
        try:
            answer = httpx.get(f"{url}/v1/models" if model is None else f"{url}/health", timeout=5)
            if answer.status_code == 200 and model is not None:
                return model
            if answer.status_code == 200 and answer.json().get("data"):
                return str(answer.json()["data"][0]["id"])
        except (httpx.HTTPError, ValueError):
            pass
        time.sleep(0.3)
    raise _NotStartedError
