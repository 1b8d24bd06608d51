"""`python -m bench planner POINTS`: the planner's predictions beside published runs that were never used to set it.

POINTS is a JSON file, a list of objects: `source`, `device`, `model`, `length`, `gpus`, `microbatch` (rows),
`activation_checkpointing` and `tokens_per_second_per_gpu`, for LLM-Foundry also `d_model`, `n_heads`, `n_layers`,
`accumulation` and `zero`; `gib_per_gpu` if memory was published. What a source does not say is assumed as in
`nn/cost/plan/published.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from qkv.nn.cost.accelerators import KNOWN
from qkv.nn.cost.plan.layout import RankLayout, Recompute
from qkv.nn.cost.plan.published import (
    FOUNDRY,
    FP8_2025,
    TITAN,
    TOLERANCE,
    Published,
    PublishedComparison,
    compare,
)
from qkv.runs.planning.published_models import spec_of

VOCABULARY = 50_432  # of MPT
RECOMPUTED: Mapping[Any, Recompute] = {
    True: "blocks",
    False: "none",
    "full": "blocks",
    "none": "none",
    "selective, by operators": "products",
}
_LLAMA_3: tuple[str, Mapping[str, Any]] = ("llama-3-8b", {})
MODELS = {
    "Llama 3 8B": _LLAMA_3,
    "Llama 3.1 8B": _LLAMA_3,
    "Llama 2 13B": ("llama-2-13b", {}),
    "Llama 2 70B": ("llama-3-8b", {"n_layers": 80, "d_model": 8192, "n_heads": 64, "d_ff": 28672, "vocab_size": 32000}),
}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench planner", description=__doc__)
    parser.add_argument("points", type=Path, help="a JSON file of published runs")
    given = parser.parse_args(words)
    try:
        runs = read(given.points)
    except (OSError, ValueError) as error:
        print(f"{given.points} can't be read as published runs: {error}", file=sys.stderr)
        return 2
    print(table([compare(run, spec_of) for run in runs]))
    return 0


def read(path: Path) -> list[Published]:
    """Read the published runs of a JSON file. Raises OSError if it can't be read, ValueError if it holds something else."""
    points = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(points, list) or not points:
        raise ValueError("it should be a list of objects")
    runs = []
    for number, point in enumerate(points):
        try:
            runs.append(published(point))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"in entry {number}, {error} is missing or not known") from None
    return runs


def published(point: Mapping[str, Any]) -> Published:
    """A published run of a point. Raises KeyError for what is missing or not known."""
    gpus, accumulation = point["gpus"], point.get("accumulation", 1)
    hardware = point["device"].split()[0].strip(",").lower()
    layout = RankLayout(
        shard=gpus,
        zero=3,
        microbatches=accumulation,
        rows=point["microbatch"],
        recompute=RECOMPUTED[point["activation_checkpointing"]],
    )
    foundry = point["source"].startswith("LLM-Foundry")
    if foundry:
        sizes = {name: point[name] for name in ("d_model", "n_heads", "n_layers")}
        model = ("gpt2", {**sizes, "d_ff": 4 * sizes["d_model"], "vocab_size": VOCABULARY})
        how = replace(FOUNDRY, keeps_parameters=point["zero"] == 2)
    else:
        model = MODELS[point["model"]]
        how = FP8_2025 if "fp8" in point["device"] else TITAN
    name = f"{point['model'].partition(':')[0]}, {gpus:,} {hardware.upper()}, {point['length']:,} tokens"
    return Published(
        *(name, model, point["length"], layout, KNOWN[hardware], NETWORKS[hardware], how),
        *(point["tokens_per_second_per_gpu"], "tokens/s", point["source"]),
        memory_gib=point.get("gib_per_gpu"),
        kernels=f"{hardware}-foundry" if foundry else "",
    )


NETWORKS = {"a100": "nvlink3-hdr", "h100": "nvlink4-ndr", "h200": "nvlink4-ndr"}


def table(rows: Sequence[PublishedComparison]) -> str:
    """The runs in Markdown, with their errors, and how many are within the tolerance."""
    heads = ("run", "batches", "again", "published", "predicted", "error", "memory, GiB", "published")
    lines = [f"| {' | '.join(heads)} |", "|---|---|---|" + "---:|" * 5]
    for row in rows:
        run = row.published
        gib = "" if run.memory_gib is None else f"{run.memory_gib:.1f}"
        many = f"{run.layout.microbatches} × {run.layout.rows}"
        lines.append(
            f"| {run.name} | {many} | {run.layout.recompute} | {run.value:,} | {row.predicted:,.0f} | {row.error:+.1%} | "
            f"{row.memory.needed / 2**30:.1f} | {gib} |"
        )
    errors = [abs(row.error) for row in rows]
    within = sum(row.within for row in rows)
    summary = (
        f"{within} of {len(rows)} are within {TOLERANCE:.0%}; the median error is {median(errors):.1%}, the largest "
    )
    return "\n".join([*lines, "", f"{summary}{max(errors):.1%}."])
