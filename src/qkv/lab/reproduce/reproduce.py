"""Run the commands of a published result, read our numbers, and write them beside the published ones."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch

from ...core.atomic import write_file
from ...core.several import path as path_of
from ...io.directories.layout import Contents, claim_folder, write_json, write_text
from ...runs.report.start import processor
from .entry import KeptResult, PublishedResult, kept
from .prepare import FIRST_OPERATOR, PREPARATIONS
from .table import comparison

COMPARISON, RESULT = "comparison.md", "comparison.json"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Reproduction:
    """The result of `reproduce`; `result` is None if it was interrupted."""

    folder: Path
    result: KeptResult | None = None


def reproduce(
    entry: PublishedResult, data: Path | str | None, out: Path | str, *, command: str = "", say: Say = print
) -> Reproduction:
    """Run the commands of an entry in `out` and write `comparison.md` and `comparison.json` there.

    Commands that train continue what an interrupted reproduction left in `out`. Raises ValueError if data are missing, if
    `out` holds them or other files, or if a command fails.
    """
    out, files = path_of(out, "out"), entry.files(None if data is None else path_of(data, "data"))
    names = dict.fromkeys(name for step in entry.steps for name in re.findall(r"\{out\}/([\w.-]+)", step))
    names |= dict.fromkeys(Path(figure.file).parts[0] for figure in entry.figures)
    contents = Contents(f"the files of the reproduction {entry.name}", (*names, FIRST_OPERATOR, RESULT, COMPARISON))
    claim_folder(out, contents, files.values())
    began = time.monotonic()
    if entry.prepare:
        PREPARATIONS[entry.prepare](files, out)
    for step in entry.steps:
        status = _run(step, files, out, say)
        if status == 130:
            return Reproduction(out)
        if status:
            raise ValueError(f"{entry.name}: `qkv {step}` ended with status {status}; its message is above")
    result = KeptResult(
        figures={figure.name: figure.read(out) for figure in entry.figures},
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        machine=f"{processor()}, {torch.get_num_threads()} thread{'s' if torch.get_num_threads() > 1 else ''}",
        versions=f"qkv {version('qkv')}, torch {torch.__version__}, Python {sys.version.split()[0]}",
        minutes=round((time.monotonic() - began) / 60, 1),
        origin=command or f"qkv reproduce {entry.name}",
    )
    write_json(out / RESULT, result.to_dict())
    write_text(out / COMPARISON, comparison(entry, result, kept(entry.name)))
    return Reproduction(out, result)


def commands(entry: PublishedResult, files: Mapping[str, Path], out: Path) -> list[str]:
    """The commands of an entry with their paths, as they are typed."""
    return [f"qkv {_filled(step, files, out)}" for step in entry.steps]


def _filled(step: str, files: Mapping[str, Path], out: Path) -> str:
    for name, path in {**files, "out": out}.items():
        step = step.replace(f"{{{name}}}", shlex.quote(str(path)))
    return step


def _run(step: str, files: Mapping[str, Path], out: Path, say: Say) -> int:
    """Run a command of qkv in a separate process; `> FILE` at its end keeps what it prints. Returns its status."""
    line, _, target = _filled(step, files, out).partition(" > ")
    say(f"$ qkv {line}{f' > {target}' if target else ''}")
    words = [sys.executable, "-m", "qkv", *shlex.split(line)]
    if words[3] in ("train", "ablate"):
        words.append("--resume")
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE if target else None, env=dict(os.environ))
    except KeyboardInterrupt:
        return 130
    if target and not done.returncode:
        write_file(Path(shlex.split(target)[0]), done.stdout)
    return done.returncode
