"""`python -m bench threads`: training with one thread, all, and the chosen number, alone and beside a busy process; and
decoding, whose kernels leave the other threads out while these are late."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from qkv.core.ranks import ALONE
from qkv.generation import generate
from qkv.io.families import preset
from qkv.nn.cost.flops import BatchShape
from qkv.nn.cost.hardware import usable_cores
from qkv.nn.cost.images import image_tokens
from qkv.nn.kernels.threads import set_threads
from qkv.nn.models.build import build
from qkv.nn.models.quantized.quantize import quantize
from qkv.nn.models.transformer import Transformer
from qkv.nn.quantization.scheme import Scheme
from qkv.training.objective import Labels
from qkv.training.settings import Training
from qkv.training.step import Stepper
from qkv.training.threads import VARIABLES, ThreadTuner

from .. import machine
from ..cost.batches import batch_of
from ..page_tables import keep

RESULT = Path(__file__).resolve().parent.parent / "results" / "threads" / "choices.json"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "machine.md"
BUSY = "while True: pass"
PROMPT, NEW = 16, 64


@dataclass(frozen=True)
class Model:
    """A preset with its sizes, and the rows and lengths of a batch."""

    title: str
    preset: str
    sizes: dict[str, Any]
    rows: int
    length: int = 0
    source: int = 0


TINY = {"d_model": 128, "n_layers": 2, "n_heads": 4, "d_ff": 512, "vocab_size": 600}
TEN = {"d_model": 256, "n_layers": 8, "n_heads": 8, "vocab_size": 8192, "max_positions": 256}
MODELS = (
    Model("localise, 1 M", "transformer", TINY, 128, 16, 16),
    Model("decoder, 10 M", "gpt2", TEN, 8, 128),
    Model("ViT-S, 22 M", "vit-base-16", {"d_model": 384, "n_heads": 6, "d_ff": 1536}, 4),
)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench threads", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each measurement")
    parser.add_argument("--quick", action="store_true", help="one model, nothing kept")
    given = parser.parse_args(words)
    fixed = [name for name in VARIABLES if os.environ.get(name)]
    if fixed:
        raise SystemExit(f"{' and '.join(fixed)} fixes the number of threads; unset it")
    load, rows = machine.load(), []
    for model in MODELS[:1] if given.quick else MODELS:
        for busy in (False, True):
            rows.append(compared(model, busy, 1 if given.quick else given.rounds, given.seconds))
            print(rows[-1], file=sys.stderr)
    for precision in () if given.quick else ("fp32", "int8"):
        for busy in (False, True):
            rows.append(decoded(precision, busy, given.rounds))
            print(rows[-1], file=sys.stderr)
    result = {
        **machine.stamp(),
        "load_before": load,
        "rounds": given.rounds,
        "rows": rows,
    }
    print(table(result))
    if not given.quick:
        RESULT.parent.mkdir(parents=True, exist_ok=True)
        keep(result, RESULT, PAGE, "threads", table(result))
    return 0


def compared(model: Model, busy: bool, rounds: int, seconds: float) -> dict[str, Any]:
    """Tokens per second with one thread, with all, and with the number that is chosen, in turns."""
    spec = preset(model.preset, **model.sizes)
    assert isinstance(spec, Transformer)
    batch = batch_of(spec, BatchShape(model.rows, image_tokens(spec) or model.length, model.source))
    stepper = Stepper(build(spec).train(), Labels(), Training(), ALONE)
    most = usable_cores()
    rates: dict[str, list[float]] = {"one": [], "all": [], "chosen": []}
    numbers = []

    def rate() -> float:
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < seconds or steps < 2:
            stepper.take([batch], 1e-5).loss.item()
            steps += 1
        return steps * batch.tokens / (time.perf_counter() - began)

    rate()
    with _busy_process() if busy else _nothing():
        for _ in range(rounds):
            for name, number in (("one", 1), ("all", most)):
                set_threads(number)
                rates[name].append(rate())
            numbers.append(ThreadTuner().choose(lambda: stepper.rehearse(batch)).threads)
            rates["chosen"].append(rate())
    set_threads(most)
    return _row(model.title, busy, rates, numbers)


def decoded(precision: str, busy: bool, rounds: int) -> dict[str, Any]:
    """Tokens per second of GPT-2 with random weights, with one thread and with all, in turns."""
    model = build(preset("gpt2")).eval()
    if precision != "fp32":
        quantize(model, Scheme(weights="int8", activations="int8"), embeddings=True, head=True)
    most, prompt = usable_cores(), torch.arange(PROMPT)[None]
    rates: dict[str, list[float]] = {"one": [], "all": [], "chosen": []}

    def rate() -> float:
        began = time.perf_counter()
        generate(model, prompt, max_new_tokens=NEW, min_new_tokens=NEW)
        return NEW / (time.perf_counter() - began)

    rate()
    with _busy_process() if busy else _nothing():
        for _ in range(rounds):
            for name, number in (("one", 1), ("chosen", most)):
                set_threads(number)
                rates[name].append(rate())
    return _row(f"GPT-2, 124 M, decoding in {precision}", busy, rates, [])


def _row(title: str, busy: bool, rates: dict[str, list[float]], numbers: list[int]) -> dict[str, Any]:
    row: dict[str, Any] = {name: round(median(values)) if values else None for name, values in rates.items()}
    best = max(("one", "all"), key=lambda name: row[name] or 0)
    share = median(a / b for a, b in zip(rates["chosen"], rates[best], strict=True))
    return {"model": title, "busy": busy, **row, "numbers": numbers, "share": round(share, 3)}


@contextmanager
def _busy_process() -> Iterator[None]:
    """One process that keeps a core busy."""
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        time.sleep(0.3)
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def table(result: dict[str, Any]) -> str:
    """The table in Markdown, with what it was measured on."""
    lines = [
        "| model | cores | one thread, tokens/s | all | chosen | share of the better |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        numbers = f" with {'/'.join(map(str, sorted(set(row['numbers']))))}" if row["numbers"] else ""
        every = f"{row['all']:,}" if row["all"] else ""
        cores = "beside a busy process" if row["busy"] else "quiet"
        lines.append(
            f"| {row['model']} | {cores} | {row['one']:,} | {every} | {row['chosen']:,}{numbers} | {row['share']:.2f} |"
        )
    where, code = result["machine"], result["code"]
    return "\n".join(
        [
            *lines,
            "",
            f"Measured by `python -m bench threads` on {result['date']}: {where['processor']}, {where['cores']} cores, "
            f"PyTorch {result['versions']['torch']}, commit {code['commit']}; medians of {result['rounds']} turns, load "
            f"{result['load_before']} before.",
        ]
    )
