"""`python -m bench fused` compares decoding by the fused step with the modules that it replaces, for docs/performance.md.

GPT-2 with random weights continues a prompt, by the fused step and by the modules in turns. The cases are the plain
model, LoRA adapters that are not merged, mixtures of experts, and quantized KV caches.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

import qkv
from qkv.nn.kernels.threads import set_threads
from qkv.nn.kv_cache.cache import Cache
from qkv.nn.models import stack
from qkv.nn.models.transformer import TransformerModel

from . import machine
from .page_tables import keep

RESULT = Path(__file__).resolve().parent / "results" / "fused" / "steps.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
SMALL = {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 85}
LORA = qkv.LoRA(rank=16)
EXPERTS = {"kind": "moe", "n_experts": 8, "top_k": 2, "d_ff": 768}
SHARED = EXPERTS | {"shared": {"kind": "feedforward", "d_ff": 768}}
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Case(NamedTuple):
    """What GPT-2 has besides its layers, and the tokens of its prompt."""

    name: str
    prompt: int = 128
    adapter: qkv.LoRA | None = None
    feedforward: dict[str, Any] | None = None
    cache: str | None = None


CASES = (
    Case("plain"),
    Case("LoRA of rank 16 in all layers", adapter=LORA),
    Case("8 experts, 2 chosen", feedforward=EXPERTS),
    Case("8 experts, 2 chosen, and a shared layer", feedforward=SHARED),
    Case("int8 cache", cache="int8"),
    Case("int8 cache, prompt of 800", 800, cache="int8"),
    Case("int4 cache, prompt of 800", 800, cache="int4"),
)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench fused", description=__doc__)
    parser.add_argument("--rounds", type=int, help="3 unless given; 1 with --quick")
    parser.add_argument("--tokens", type=int, default=16, help="in each measurement")
    parser.add_argument("--only", default="", metavar="WORDS", help="only cases with all these words; nothing kept")
    parser.add_argument("--quick", action="store_true", help="tiny models, one thread, nothing kept")
    given = parser.parse_args(words)
    chosen = [case for case in CASES if all(word in case.name for word in given.only.split())]
    if not chosen:
        parser.error(f"no case has all of {given.only.split()} in its name")
    rounds = given.rounds if given.rounds is not None else 1 if given.quick else 3
    if rounds < 1 or given.tokens < 1:
        parser.error("--rounds and --tokens take 1 or more")
    load = machine.load()
    sizes, threads = (SMALL, (1,)) if given.quick else ({}, (1, 2))
    rows = [row for case in chosen for row in measured(case, sizes, threads, rounds, given.tokens)]
    result = {**machine.stamp(), "load_before": load, "rounds": rounds, "tokens": given.tokens, "rows": rows}
    print(table(result))
    if not (given.quick or given.only):
        RESULT.parent.mkdir(exist_ok=True)
        keep(result, RESULT, PAGE, "fused", table(result))
    return 0


def measured(
    case: Case, sizes: dict[str, int], numbers: tuple[int, ...], rounds: int, tokens: int
) -> list[dict[str, Any]]:
    """Return the milliseconds of a step by both, for 1 and 16 rows, each number of threads and each precision."""
    before, found = torch.get_num_threads(), list[dict[str, Any]]()
    try:
        for name, dtype in PRECISIONS.items():
            model = _built(case, sizes, dtype)
            for rows in (1, 16):
                start = _read(model, case, rows)
                for threads in numbers:
                    set_threads(threads)
                    times = _in_turns(model, start, rounds, tokens)
                    found.append({"case": case.name, "precision": name, "rows": rows, "threads": threads, **times})
    finally:
        set_threads(before)
    return found


def _built(case: Case, sizes: dict[str, int], dtype: torch.dtype) -> TransformerModel:
    spec = qkv.preset("gpt2", **sizes)
    if case.feedforward is not None:
        spec = spec.replace({"decoder.blocks.*.feedforward": case.feedforward})
    model = qkv.build(spec, dtype=dtype, seed=0)
    if case.adapter is not None:
        qkv.adapt(model, case.adapter)
    return model.eval()


@torch.inference_mode()
def _read(model: TransformerModel, case: Case, rows: int) -> Cache:
    """A cache with the prompt."""
    cache = model.start(rows, cache=case.cache)
    model.step(torch.randint(80, (rows, case.prompt), generator=torch.Generator().manual_seed(0)), cache)
    return cache


@torch.inference_mode()
def _in_turns(model: TransformerModel, start: Cache, rounds: int, tokens: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {"fused": [], "modules": []}
    for number in range(1 + rounds):
        for name, context in (("fused", nullcontext), ("modules", by_modules)):
            with context():
                spent = _step_ms(model, start.fork(), tokens if number else 2)
            if number:  # the first turn compiles kernels
                times[name].append(round(spent, 3))
    return times


def _step_ms(model: TransformerModel, cache: Cache, tokens: int) -> float:
    ids = torch.zeros(cache.batch_size, 1, dtype=torch.long)
    with cache.settle():
        model.step(ids, cache)
        begin = time.perf_counter()
        for _ in range(tokens):
            model.step(ids, cache)
        return 1e3 * (time.perf_counter() - begin) / tokens


@contextmanager
def by_modules() -> Any:
    """Context in which the modules compute the steps."""
    kept: Callable[..., Any] = stack.fused_step
    stack.fused_step = lambda *about: None  # type: ignore[assignment]
    try:
        yield
    finally:
        stack.fused_step = kept  # type: ignore[assignment]


def table(result: dict[str, Any]) -> str:
    """The table in Markdown, with what it was measured on."""
    shown: dict[tuple[str, str], list[str]] = {}
    heads: dict[str, None] = {}  # in their order
    for row in result["rows"]:
        heads[", ".join(f"{row[name]} {name if row[name] > 1 else name[:-1]}" for name in ("rows", "threads"))] = None
        ratio = median(b / a for a, b in zip(row["fused"], row["modules"], strict=True))
        shown.setdefault((row["case"], row["precision"]), []).append(f"{median(row['fused']):.2f}, {ratio:.2f}")
    where = result["machine"]
    return "\n".join(
        [
            f"| GPT-2 with | precision | {' | '.join(heads)} |",
            f"|---|---|{'---:|' * len(heads)}",
            *(f"| {' | '.join((*about, *cells))} |" for about, cells in shown.items()),
            "",
            "Milliseconds of a fused step, and how many times as long the modules take. Measured by `python -m bench fused` "
            f"on {result['date']}: {where['processor']}, PyTorch {result['versions']['torch']}, commit "
            f"{result['code']['commit']}; medians of {result['rounds']} turns of {result['tokens']} steps, load average "
            f"{result['load_before']} at the start.",
        ]
    )
