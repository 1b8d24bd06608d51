"""The peers' environments: `python -m bench.peers` makes one under bench/.envs/ for each, at the versions named here.

The PyTorch in them is the one of constraints.txt, so that all contenders stand on the same kernels.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVS = HERE / ".envs"
CONSTRAINTS = HERE.parent / "constraints.txt"
OURS = "qkv"
PEERS = {
    "huggingface": ("transformers==5.23.0",),
    "x-transformers": ("x-transformers==2.31.10",),
}


def python(environment: str) -> Path:
    """The interpreter of an environment. Raises ValueError, saying how to make it, where there is none."""
    if environment == OURS:
        return Path(sys.executable)
    if environment not in PEERS:
        raise ValueError(f"there is no peer {environment!r}; known: {', '.join(PEERS)}")
    found = ENVS / environment / "bin" / "python"
    if not found.exists():
        raise ValueError(f"the environment of {environment} is missing: make it with python -m bench.peers")
    return found


def make(name: str) -> None:
    """Install a peer, pinned, into its own environment; what is there already and complete stays."""
    place = ENVS / name
    wanted = "\n".join(("torch", *PEERS[name]))
    stamp = place / ".made"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"Making {place} …", flush=True)
    venv.create(place, with_pip=True, clear=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "-c", str(CONSTRAINTS), "torch", *PEERS[name]], check=True)
    stamp.write_text(wanted)


if __name__ == "__main__":
    for peer in sys.argv[1:] or PEERS:
        make(peer)
