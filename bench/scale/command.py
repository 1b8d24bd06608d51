"""`python -m bench scale`: measure, print and keep the table of docs/scale.md."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from qkv.training.parallel.scale import AXES

from .. import machine
from ..page_tables import keep
from .ranks import Group, Shape, Way

STEPS_OF_ONE = 8  # of one reading
RESULT = Path(__file__).resolve().parent.parent / "results" / "scale" / "two-ranks.json"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
ONE = Way("one rank, two threads", 1, 2)
MESH = tuple((axis, 1) for axis in AXES)
OF_ONE = (
    Way("qkv train", 1, 1, launched=False),
    Way("with all axes of scale at 1", 1, 1, MESH, launched=False),
    Way("the same under torchrun, one rank", 1, 1, MESH),
)
WAYS = (
    ONE,
    Way("replicas", 2, 1),
    Way("ZeRO 1", 2, 1, (("shard", 2), ("zero", 1))),
    Way("ZeRO 2", 2, 1, (("shard", 2), ("zero", 2))),
    Way("ZeRO 3", 2, 1, (("shard", 2), ("zero", 3))),
)
SHAPES = (
    Shape("10 M decoder", 320, 6, 8192, 256, 8),
    Shape("27 M decoder", 448, 8, 16384, 256, 4, heads=7),
)
SMALL = Shape("0.1 M decoder", 64, 2, 100, 64, 32, heads=4)  # of short steps, in which any work beside them would show
QUICK = (Shape("tiny decoder", 32, 2, 100, 32, 4, heads=2),)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench scale", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="readings of each way, taken in turns")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, nothing kept")
    parser.add_argument(
        "--only", choices=[shape.name for shape in SHAPES], help="measure this model, keep the other's rows"
    )
    parser.add_argument("--one", action="store_true", help="what a mesh of one rank costs; nothing kept")
    given = parser.parse_args(words)
    if given.one:
        print(of_one(2 if given.quick else 60))
        return 0
    rounds = 2 if given.quick else given.rounds
    load = machine.load()
    shapes = QUICK if given.quick else [shape for shape in SHAPES if given.only in (None, shape.name)]
    new = {shape.name: measure(shape, rounds) for shape in shapes}
    kept = {shape.name: known(shape.name, rounds) if given.only else [] for shape in SHAPES}
    rows = [row for some in (kept | new).values() for row in some]
    result = {
        **machine.stamp(),
        "load_before": load,
        "rounds": rounds,
        "rows": rows,
    }
    print(table(result))
    if not given.quick:
        keep(result, RESULT, PAGE, "scale", table(result))
    return 0


def of_one(rounds: int) -> str:
    """Tokens/s of a process without a layout, with a mesh of size one, and with that under torchrun: medians in turns."""
    found = seconds_of(OF_ONE, SMALL, rounds, STEPS_OF_ONE)
    one = found[OF_ONE[0]]
    lines = ["| one rank, one thread | tokens/s | of qkv train |", "|---|---:|---:|"]
    for way, seconds in found.items():
        ratio = median(a / b for a, b in zip(one, seconds, strict=True))
        lines.append(f"| {way.name} | {SMALL.tokens / median(seconds):,.0f} | {ratio:.3f} |")
    return "\n".join(lines)


def seconds_of(ways: Sequence[Way], shape: Shape, rounds: int, steps: int) -> dict[Way, list[float]]:
    """Seconds of a step, of every way in turns, forward and backward: A B C, C B A …"""
    groups = {way: Group(way, shape) for way in ways}
    found: dict[Way, list[float]] = {way: [] for way in ways}
    try:
        for group in groups.values():
            group.take(steps)  # warm
        for number in range(rounds):
            for way in ways if number % 2 == 0 else reversed(ways):
                found[way].append(groups[way].take(steps)["seconds"])
    finally:
        for group in groups.values():
            group.close()
    return found


def known(shape: str, rounds: int) -> list[dict[str, Any]]:
    """The rows of a model in the kept result, if they are of the same code and as many readings."""
    kept = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    if (kept.get("code", {}).get("digest"), kept.get("rounds")) != (machine.code()["digest"], rounds):
        return []
    return [row for row in kept["rows"] if row["shape"] == shape]


def measure(shape: Shape, rounds: int) -> list[dict[str, Any]]:
    """Readings of every way in turns: A B C … A B C …"""
    groups = {way: Group(way, shape) for way in WAYS}
    readings: dict[Way, list[dict[str, Any]]] = {way: [] for way in WAYS}
    try:
        for group in groups.values():
            group.take(1)  # warm
        for number in range(rounds):
            order = list(groups) if number % 2 == 0 else list(reversed(groups))
            for way in order:
                readings[way].append(groups[way].take())
            print(f"{shape.name}: {number + 1} of {rounds} rounds", file=sys.stderr)
    finally:
        for group in groups.values():
            group.close()
    one = [reading["seconds"] for reading in readings[ONE]]
    rows = []
    for way, found in readings.items():
        seconds = [reading["seconds"] for reading in found]
        rows.append(
            {
                "shape": shape.name,
                "way": way.name,
                "tokens_per_s": round(shape.tokens / median(seconds)),
                "ratio": round(median(a / b for a, b in zip(one, seconds, strict=True)), 3),
                "loss": found[-1]["loss"],
                "bytes": found[-1]["bytes"],
            }
        )
    return rows


def table(result: dict[str, Any]) -> str:
    """The table in Markdown, with what it was measured on."""
    lines = [
        "| model | ranks | tokens/s | of one rank | MB of parameters and optimizer state a rank |",
        "|---|---|---:|---:|---|",
    ]
    for row in result["rows"]:
        sizes = ", ".join(f"{sum(rank.values()) / 1e6:.1f}" for rank in row["bytes"])
        lines.append(f"| {row['shape']} | {row['way']} | {row['tokens_per_s']:,} | {row['ratio']:.2f} | {sizes} |")
    where, code = result["machine"], result["code"]
    lines += [
        "",
        f"Measured by `python -m bench scale` on {result['date']}: {where['processor']}, {where['cores']} cores, "
        f"PyTorch {result['versions']['torch']}, commit {code['commit']}; medians of {result['rounds']} readings in turns, "
        f"load {result['load_before']} before.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
