"""A library in its own interpreter, which loads a model before the readings and then answers lines in JSON."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any


class Contender:
    """The process of `python SCRIPT LIBRARY …`, which has loaded its model and said its version."""

    def __init__(self, python: str, script: Path, words: tuple[object, ...], threads: int) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
        self.process = subprocess.Popen(
            [python, str(script), *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.version = self._answer()["version"]

    def ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None and self.process.stderr is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        said = self.process.stderr.read().strip().splitlines()
        raise ValueError(said[-1] if said else "the process ended without a word")

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
