"""`qkv serve` as a real process."""

from __future__ import annotations

import atexit
import os
import re
import signal
import subprocess
import sys


class Process:
    """A server in a process of its own, on a free port by default."""

    def __init__(self, *arguments: str, port: int = 0) -> None:
        command = [sys.executable, "-m", "qkv", "serve", *arguments, "--port", str(port)]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        atexit.register(self.process.kill)  # if a test fails before it stops it
        assert self.process.stderr is not None
        self.said = ""
        while (found := re.search(r"http://127.0.0.1:(\d+)/", self.said)) is None:
            line = self.process.stderr.readline()
            assert line, self.said
            self.said += line
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self) -> str:
        """End it by SIGTERM, and return what it said since it began to listen."""
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=60)
        return said
