"""A baseline that a run's evaluation has measured already."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def evaluated(words: list[str]) -> dict[str, Any]:
    """Return the best baseline, by this metric, that the run's evaluation measured on the same examples."""
    parser = argparse.ArgumentParser(prog="evaluated")
    parser.add_argument("run")
    parser.add_argument("metric")
    given = parser.parse_args(words)
    every = json.loads((Path(given.run) / "evaluation.json").read_text())["baselines"]
    best = max((one for one in every if given.metric in one["metrics"]), key=lambda one: one["metrics"][given.metric])
    return {"name": best["name"], given.metric: best["metrics"][given.metric]}


COMMANDS = {"evaluated": evaluated}
