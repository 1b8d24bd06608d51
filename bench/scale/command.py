"""`python -m bench scale`: measure, print and keep the table of docs/scale.md."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

from .. import machine
from ..page_tables import keep
from .ranks import Group, Shape, Way

RESULT = Path(__file__).resolve().parent.parent / "results" / "scale" / "two-ranks.json"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
ONE = Way("one rank, two threads", 1, 2)
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
QUICK = (Shape("tiny decoder", 32, 2, 100, 32, 4, heads=2),)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench scale", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="readings of each way, taken in turns")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, nothing kept")
    parser.add_argument(
        "--only", choices=[shape.name for shape in SHAPES], help="measure this model, keep the other's rows"
    )
    given = parser.parse_args(words)
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
