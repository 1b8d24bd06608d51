"""A copy of the sources of the package, and the wheel of such a directory, built with the packages of this environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def copied_sources(folder: Path) -> Path:
    """Copy what wheels are made of, because building one writes into its source directory."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    for name in ("src/qkv", "docs/tour"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


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
