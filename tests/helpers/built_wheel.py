"""The wheel of a source directory, built with the packages of this environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def built_wheel(source: Path, folder: Path, **environment: str) -> Path:
    options = ["--no-deps", "--no-build-isolation", "-q", "-w", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, str(source)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = folder.glob("qkv-*.whl")
    return wheel
