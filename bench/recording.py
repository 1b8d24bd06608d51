"""`python -m bench recording`: what `qkv.record_attention` costs during generation, the table of docs/look.md.

Models with random weights continue a prompt greedily with a KV cache, with and without recording in turns.
"""

from __future__ import annotations

import argparse
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

import qkv

from . import machine
from .page_tables import keep

RESULT = Path(__file__).resolve().parent / "results" / "recording" / "generation.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "look.md"


@dataclass(frozen=True)
class Model:
    """GPT-2 in some size, and the tokens of its prompt and of what it generates."""

    name: str
    prompt: int
    new: int
    sizes: dict[str, int]


MODELS = (
    Model("4 layers of width 128", 64, 32, {"d_model": 128, "n_layers": 4, "n_heads": 4, "vocab_size": 85}),
    Model("6 layers of width 512", 64, 32, {"d_model": 512, "n_layers": 6, "n_heads": 8, "vocab_size": 8000}),
    Model("GPT-2, 124 M parameters", 128, 16, {}),
)
QUICK = (Model("1 layer of width 32", 8, 4, {"d_model": 32, "n_layers": 1, "n_heads": 2, "vocab_size": 85}),)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench recording", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="a tiny model, one round, nothing kept")
    given = parser.parse_args(words)
    load = machine.load()
    rows = [measured(model, 1 if given.quick else given.rounds) for model in (QUICK if given.quick else MODELS)]
    result = {**machine.stamp(), "threads": torch.get_num_threads(), "load_before": load, "rows": rows}
    print(table(result))
    if not given.quick:
        RESULT.parent.mkdir(exist_ok=True)
        keep(result, RESULT, PAGE, "recording", table(result))
    return 0


def measured(model: Model, rounds: int) -> dict[str, Any]:
    """Tokens per second without and with recording, in turns."""
    network = qkv.build(qkv.preset("gpt2", **model.sizes), seed=0).eval()
    ids = torch.randint(64, (1, model.prompt), generator=torch.Generator().manual_seed(0))
    pace: dict[str, list[float]] = {"without": [], "with": []}
    for number in range(1 + rounds):
        for name, context in (("without", nullcontext()), ("with", qkv.record_attention())):
            tokens = _pace(network, ids, model.new, context)
            if number:  # the first turn compiles kernels
                pace[name].append(round(tokens, 1))
    return {"model": model.name, "prompt": model.prompt, "new": model.new, **pace}


def _pace(network: Any, ids: torch.Tensor, new: int, context: AbstractContextManager[Any]) -> float:
    begin = time.perf_counter()
    with torch.no_grad(), context:
        qkv.generation.generate(network, ids, max_new_tokens=new)
    return new / (time.perf_counter() - begin)


def table(result: dict[str, Any]) -> str:
    """The table in Markdown, with what it was measured on."""
    lines = ["| model | without, tokens/s | with, tokens/s | ratio |", "|---|---:|---:|---:|"]
    for row in result["rows"]:
        ratio = median(b / a for a, b in zip(row["without"], row["with"], strict=True))
        lines.append(f"| {row['model']} | {median(row['without']):,.0f} | {median(row['with']):,.0f} | {ratio:.2f} |")
    where = result["machine"]
    return "\n".join(
        [
            *lines,
            "",
            f"Measured by `python -m bench recording` on {result['date']}: {where['processor']}, "
            f"{result['threads']} threads, PyTorch {result['versions']['torch']}, commit {result['code']['commit']}; "
            f"medians of {len(result['rows'][0]['with'])} interleaved runs, load average {result['load_before']} at the "
            "start.",
        ]
    )
