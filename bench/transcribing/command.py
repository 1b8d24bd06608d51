"""`python -m bench transcribing`: Whisper beside faster-whisper.

    python -m bench.peers faster-whisper
    python -m bench transcribing --peer "faster-whisper=bench/.envs/faster-whisper/bin/python"

A model of Whisper tiny's size with random weights, which both libraries read from one directory; faster-whisper's copy is
converted by CTranslate2's converter. Both read the same sound, some windows of 30 seconds, compute its features, encode each
window once, and write the same number of tokens for each, without timestamps and without decoding again: greedily and with
5 beams, in fp32 and int8. Libraries load their models before the readings and take turns.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from .. import machine
from ..contenders.loading import FOLDER
from ..contenders.process import Contender
from ..page_tables import keep
from .peer import LIBRARIES, Ids
from .work import WINDOW, model, sound

HERE = Path(__file__).resolve().parent
RESULT = HERE.parent / "results" / "transcribing" / "whisper-tiny.json"
PAGE = HERE.parents[1] / "docs" / "performance.md"
OURS = "qkv"
WINDOWS, NEW = 6, 100
BEAMS = (1, 5)
PRECISIONS = ("fp32", "int8")
ASKED = 1.2


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench transcribing", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help="a library's interpreter")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="default: both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a tiny model, one window, one round, nothing kept")
    given = parser.parse_args(words)
    if given.rounds < 1:
        parser.error("--rounds is at least 1")
    pythons = {OURS: sys.executable}
    for peer in given.peer:
        name, given_python, python = peer.partition("=")
        if name not in LIBRARIES or not given_python:
            parser.error(f"--peer is NAME=PYTHON with a name of {', '.join(LIBRARIES)}, not {peer!r}")
        pythons[name] = python
    rounds = 1 if given.quick else given.rounds
    measured: list[dict[str, Any]] = []
    for precision in given.precision or PRECISIONS:
        measured += measure(precision, pythons, rounds, given.threads, given.quick)
    print(table({"cases": measured}))
    if not given.quick:
        RESULT.parent.mkdir(parents=True, exist_ok=True)
        keep({"cases": measured}, RESULT, PAGE, "transcribing", table({"cases": measured}))
    return 0


def measure(precision: str, pythons: dict[str, str], rounds: int, threads: int, tiny: bool) -> list[dict[str, Any]]:
    """Seconds of every library, in turns: a case for each number of beams."""
    load, folder, windows, new = machine.load(), model(tiny), 1 if tiny else WINDOWS, 8 if tiny else NEW
    file = FOLDER / "transcribing" / f"sound-{windows}.npy"
    np.save(file, sound(windows))
    found, failed = started(pythons, (folder, precision, file, new, threads), threads)
    seconds: dict[int, dict[str, list[float]]] = {beams: {name: [] for name in found} for beams in BEAMS}
    rows: dict[int, dict[str, list[Ids]]] = {beams: {} for beams in BEAMS}
    try:
        for number in range(rounds):
            for name in list(found) if number % 2 == 0 else reversed(found):
                for beams in BEAMS:
                    answer = found[name].ask(str(beams))
                    seconds[beams][name].append(round(answer["seconds"], 3))
                    rows[beams][name] = answer["rows"]
    finally:
        for contender in found.values():
            contender.close()
    common = {
        "precision": precision,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine.describe(),
        "code": machine.code(),
        "torch": version("torch"),
        "python": platform.python_version(),
        "load_before": load,
        "threads": threads,
        "rounds": rounds,
        "windows": windows,
        "new_tokens": new,
        "versions": {name: contender.version for name, contender in found.items()},
        "failed": failed,
    }
    return [
        {**common, "beams": beams, "seconds": seconds[beams], "other_tokens": other_tokens(rows[beams])}
        for beams in BEAMS
    ]


def started(
    pythons: dict[str, str], words: Sequence[object], threads: int
) -> tuple[dict[str, Contender], dict[str, str]]:
    """The libraries that have loaded the model, and why the others have not."""
    found, failed = dict[str, Contender](), dict[str, str]()
    for name in LIBRARIES:
        if name not in pythons:
            failed[name] = "no interpreter given"
            continue
        try:
            found[name] = Contender(pythons[name], HERE / "peer.py", (name, *words), threads)
        except (ValueError, OSError) as error:
            if name == OURS:
                raise
            failed[name] = str(error)[:200]
    return found, failed


def other_tokens(rows: dict[str, list[Ids]]) -> dict[str, float]:
    """The share of tokens in which each library differs from qkv."""
    ours = [token for row in rows[OURS] for token in row]
    return {
        name: sum(a != b for a, b in zip(ours, (token for row in theirs for token in row), strict=True)) / len(ours)
        for name, theirs in rows.items()
        if name != OURS
    }


def table(result: dict[str, Any]) -> str:
    """The table in Markdown, with what it was measured on."""
    lines = [
        "| search | precision | library | seconds of sound in a second | qkv ÷ it | goal |",
        "|---|---|---|---:|---:|---|",
    ]
    for case in result["cases"]:
        search = "greedy" if case["beams"] == 1 else f"{case['beams']} beams"
        head = f"| {search} | {case['precision']} |"
        speeds = {name: case["windows"] * WINDOW / median(each) for name, each in case["seconds"].items()}
        lines.append(f"{head} qkv | {speeds[OURS]:.0f} | | |")
        for name, speed in speeds.items():
            if name == OURS:
                continue
            ratio, other = speeds[OURS] / speed, case["other_tokens"][name]
            told = f", {other:.0%} other tokens" if other and case["precision"] == "fp32" else ""
            met = "reached" if ratio >= ASKED else "**not reached**"
            lines.append(f"{head} {name}{told} | {speed:.0f} | {ratio:.2f} | ≥ {ASKED}: {met} |")
        lines += [f"{head} {name}: {why} | | | |" for name, why in case["failed"].items()]
    return "\n".join([*lines, "", _measured_on(result["cases"])])


def _measured_on(cases: list[dict[str, Any]]) -> str:
    last, where = cases[-1], cases[-1]["machine"]
    sets = "; ".join(
        f"{case['precision']}: {case['date']}, commit {case['code']['commit']}, {case['rounds']} rounds, "
        f"load {case['load_before']} before"
        for case in cases
        if case["beams"] == BEAMS[0]
    )
    return (
        f"Measured by `python -m bench transcribing --peer NAME=PYTHON`: {where['processor']} "
        f"({', '.join(where['instructions'])}), {where['cores']} cores, {last['threads']} threads; "
        f"{', '.join(last['versions'].values())}; {last['windows']} windows of {WINDOW} seconds, "
        f"{last['new_tokens']} tokens for each, medians of turns. {sets}. "
        "In int8 each library rounds in its own way; in fp32 tokens are compared."
    )
