"""Make the files that a reproduction trains on from those that are published: splits, cut-offs, generated pairs."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from ...core.atomic import write_file

CUTOFF = 26  # actions in the longest SCAN command of the training split


def tinyshakespeare(files: Mapping[str, Path], out: Path) -> None:
    """The first nine tenths of the text for training, the last for validation, as nanoGPT divides it."""
    text = _read(files["input.txt"])
    first = int(0.9 * len(text))
    _write(out / "train.txt", text[:first])
    _write(out / "validation.txt", text[first:])


def reverse(files: Mapping[str, Path], out: Path) -> None:
    """Numbers below 50 and the same in reverse order, as JoeyNMT's tutorial draws them: 50,000 sequences of 1 to 25 for
    training, then 1,000 of 1 to 30 for validation and 1,000 for testing, all from one generator with the seed 42."""
    random = np.random.RandomState(42)
    for split, number, longest in (("train", 50_000, 25), ("validation", 1_000, 30), ("test", 1_000, 30)):
        lines = []
        for _ in range(number):
            words = [str(n) for n in random.randint(0, 50, random.randint(1, longest + 1))]
            lines.append(f"{' '.join(words)}\t{' '.join(reversed(words))}\n")
        _write(out / f"{split}.tsv", "".join(lines))


def scan(files: Mapping[str, Path], out: Path) -> None:
    """All commands of SCAN, divided by length: up to `CUTOFF` actions for training (one in twenty of them held out for
    validation), longer ones for testing."""
    pairs = []
    for path in files.values():
        for line in _read(path).splitlines():
            command, _, actions = line.removeprefix("IN: ").partition(" OUT: ")
            pairs.append((command, actions))
    short = [pair for pair in pairs if len(pair[1].split()) <= CUTOFF]
    long = [pair for pair in pairs if len(pair[1].split()) > CUTOFF]
    held_out = set(np.random.RandomState(0).permutation(len(short))[: len(short) // 20].tolist())
    splits = {
        "train": [pair for i, pair in enumerate(short) if i not in held_out],
        "validation": [pair for i, pair in enumerate(short) if i in held_out],
        "test": long,
    }
    for split, chosen in splits.items():
        _write(out / f"{split}.tsv", "".join(f"{command}\t{actions}\n" for command, actions in chosen))


PREPARATIONS: dict[str, Callable[[Mapping[str, Path], Path], None]] = {
    "tinyshakespeare": tinyshakespeare,
    "reverse": reverse,
    "scan": scan,
}


def _read(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    elif path.suffix == ".xz":
        content = lzma.decompress(content)
    return content.decode("utf-8")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text.encode("utf-8"))
