"""`python -m bench translating`: encoder–decoders translate batches of sentences, beside other libraries.

    python -m bench translating --peer "CTranslate2=envs/ct/bin/python" --peer "Hugging Face=envs/hf/bin/python"

Two shapes with random weights, which all libraries read: Transformer-base and OPUS-MT's Marian. The sources have the lengths
of real sentences, those of Multi30k's test set (`QKV_BENCH_DATA` names the folder that holds it), and are sorted by length
into batches of 32. The rows of a batch get as many new tokens as its median source has, the same in every library. Greedy
decoding and beam search with 4 beams, in fp32 and int8. Libraries load their models before the readings and take turns. A
library for which no interpreter is given stands in the table as not measured.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from .. import machine
from ..contenders.loading import FOLDER
from ..contenders.process import Contender
from ..corpora import MULTI30K, missing
from ..page_tables import keep
from .peer import LIBRARIES, Ids
from .work import ROWS, SHAPES, batches, lengths, model, settings

HERE = Path(__file__).resolve().parent
RESULT = HERE.parent / "results" / "translating" / "sentences.json"
PAGE = HERE.parents[1] / "docs" / "performance.md"
OURS = "qkv"
SENTENCES = 256
BEAMS = (1, 4)
PRECISIONS = ("fp32", "int8")
OFFERED = {OURS: PRECISIONS, "Hugging Face": ("fp32",), "CTranslate2": PRECISIONS}
ASKED = {"Hugging Face": 5.0, "CTranslate2": 1.2}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench translating", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help="a library's interpreter")
    parser.add_argument("--shape", action="append", choices=list(SHAPES), help="default: both")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="default: both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="tiny models, few sentences, one round, nothing kept")
    given = parser.parse_args(words)
    if given.rounds < 1:
        parser.error("--rounds is at least 1")
    pythons = {OURS: sys.executable}
    for peer in given.peer:
        name, given_python, python = peer.partition("=")
        if name not in LIBRARIES or not given_python:
            parser.error(f"--peer is NAME=PYTHON with a name of {', '.join(LIBRARIES)}, not {peer!r}")
        pythons[name] = python
    if lacks := missing(MULTI30K):
        parser.error(lacks)
    rounds = 1 if given.quick else given.rounds
    measured = []
    for shape in given.shape or SHAPES:
        for precision in given.precision or PRECISIONS:
            measured += measure(shape, precision, pythons, rounds, given.threads, given.quick)
    print(table({"cases": measured}))
    if not given.quick:
        kept = json.loads(RESULT.read_text())["cases"] if RESULT.exists() else []
        result = {"cases": merged(kept, measured)}
        RESULT.parent.mkdir(parents=True, exist_ok=True)
        keep(result, RESULT, PAGE, "translating", table(result))
    return 0


def merged(kept: list[dict[str, Any]], measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All cases in the order of the table; those measured now replace those kept of the same name."""

    def place(case: dict[str, Any]) -> tuple[int, int, int]:
        return list(SHAPES).index(case["shape"]), PRECISIONS.index(case["precision"]), case["beams"]

    there = {place(case): case for case in [*kept, *measured]}
    return [there[key] for key in sorted(there)]


def measure(
    shape: str, precision: str, pythons: dict[str, str], rounds: int, threads: int, tiny: bool
) -> list[dict[str, Any]]:
    """New tokens per second of every library that offers a precision, in turns: a case for each number of beams."""
    load, folder = machine.load(), model(shape, tiny)
    work = batches(lengths(2 * ROWS if tiny else SENTENCES), settings(shape, tiny)["vocab_size"])
    tokens, sentences = (
        sum(len(batch["rows"]) * batch["new"] for batch in work),
        sum(len(batch["rows"]) for batch in work),
    )
    file = FOLDER / "translating" / f"{folder.name}-batches.json"
    file.write_text(json.dumps(work))
    found, failed = started(precision, pythons, (folder, precision, file, threads), threads)
    rates: dict[int, dict[str, list[float]]] = {beams: {name: [] for name in found} for beams in BEAMS}
    rows: dict[int, dict[str, list[Ids]]] = {beams: {} for beams in BEAMS}
    try:
        for number in range(rounds):
            for name in list(found) if number % 2 == 0 else reversed(found):
                for beams in BEAMS:
                    answer = found[name].ask(str(beams))
                    rates[beams][name].append(round(tokens / answer["seconds"], 2))
                    rows[beams][name] = answer["rows"]
    finally:
        for contender in found.values():
            contender.close()
    common = {
        "shape": shape,
        "precision": precision,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine.describe(),
        "code": machine.code(),
        "torch": version("torch"),
        "python": platform.python_version(),
        "load_before": load,
        "threads": threads,
        "rounds": rounds,
        "sentences": sentences,
        "new_tokens": tokens,
        "versions": {name: contender.version for name, contender in found.items()},
        "failed": failed,
    }
    return [
        {**common, "beams": beams, "tokens_per_s": rates[beams], "other_rows": other_rows(rows[beams])}
        for beams in BEAMS
    ]


def started(
    precision: str, pythons: dict[str, str], words: Sequence[object], threads: int
) -> tuple[dict[str, Contender], dict[str, str]]:
    """The libraries that have loaded the model, and why the others have not."""
    found, failed = dict[str, Contender](), dict[str, str]()
    for name, offered in OFFERED.items():
        if precision not in offered:
            continue
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


def other_rows(rows: dict[str, list[Ids]]) -> dict[str, int]:
    """How many sentences each library translates into other tokens than qkv."""
    return {
        name: sum(a != b for a, b in zip(theirs, rows[OURS], strict=True))
        for name, theirs in rows.items()
        if name != OURS
    }


def table(result: dict[str, Any]) -> str:
    """The table in Markdown, with what it was measured on."""
    lines = [
        "| shape | search | precision | library | tokens/s | qkv ÷ it | goal |",
        "|---|---|---|---|---:|---:|---|",
    ]
    for case in result["cases"]:
        search = "greedy" if case["beams"] == 1 else f"{case['beams']} beams"
        head = f"| {case['shape']} | {search} | {case['precision']} |"
        rates = {name: median(each) for name, each in case["tokens_per_s"].items()}
        lines.append(f"{head} qkv | {rates[OURS]:.0f} | | |")
        for name, rate in rates.items():
            if name == OURS:
                continue
            ratio, other = rates[OURS] / rate, case["other_rows"][name]
            told = f", other tokens in {other} of {case['sentences']}" if other and case["precision"] == "fp32" else ""
            met = "reached" if ratio >= ASKED[name] else "**not reached**"
            lines.append(f"{head} {name}{told} | {rate:.0f} | {ratio:.2f} | ≥ {ASKED[name]}: {met} |")
        lines += [f"{head} {name}: {why} | | | |" for name, why in case["failed"].items()]
    return "\n".join([*lines, "", _measured_on(result["cases"])])


def _measured_on(cases: list[dict[str, Any]]) -> str:
    last, where = cases[-1], cases[-1]["machine"]
    versions: dict[str, str] = {}
    for case in cases:
        versions |= case["versions"]
    sets = "; ".join(
        f"{case['shape']} {case['precision']}: {case['date']}, commit {case['code']['commit']}, {case['rounds']} rounds, "
        f"load {case['load_before']} before"
        for case in cases
        if case["beams"] == BEAMS[0]
    )
    return (
        f"Measured by `python -m bench translating --peer NAME=PYTHON …`: {where['processor']} "
        f"({', '.join(where['instructions'])}), {where['cores']} cores, {last['threads']} threads; "
        f"{', '.join(versions.values())}; {last['sentences']} sentences in batches of {ROWS}, {last['new_tokens']} new "
        f"tokens, medians of turns. {sets}. In int8 each library rounds weights and activations in its own way, and tokens "
        "of random weights then part soon; in fp32 they are compared."
    )
