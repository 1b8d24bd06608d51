"""`python -m bench cost`: predicted times beside measured ones, the table of docs/cost.md."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch

from qkv.core.ranks import ALONE
from qkv.generation.generate import generate
from qkv.io.families import preset
from qkv.lab.costs.measured_time import generation_seconds, training_seconds
from qkv.nn.cost.flops import BatchShape
from qkv.nn.cost.images import image_tokens
from qkv.nn.models.build import build
from qkv.nn.models.transformer import Transformer
from qkv.training.mixed_precision import choose
from qkv.training.objective import Labels
from qkv.training.settings import Training
from qkv.training.step import Stepper

from .. import machine
from ..page_tables import keep
from .batches import batch_of

RESULT = Path(__file__).resolve().parent.parent / "results" / "cost" / "times.json"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "cost.md"
CPU = torch.device("cpu")
NEW = 64


@dataclass(frozen=True)
class Model:
    """A preset, the rows and lengths of a training batch, and the prompt before generation (0 for no generation)."""

    name: str
    rows: int
    length: int = 0
    source: int = 0
    prompt: int = 0


MODELS = (
    Model("gpt2", 4, 512, prompt=128),
    Model("bert-base", 16, 128),
    Model("vit-base-16", 8),
    Model("transformer-base", 32, 32, 32, prompt=32),
)
QUICK = (Model("gpt2", 2, 32, prompt=8),)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="predictions and measurements, taken in turns")
    parser.add_argument("--quick", action="store_true", help="one model, nothing kept")
    given = parser.parse_args(words)
    rounds, load = 1 if given.quick else given.rounds, machine.load()
    rows = [row for model in (QUICK if given.quick else MODELS) for row in compared(model, rounds)]
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine.describe(),
        "code": machine.code(),
        "versions": {"python": platform.python_version(), "torch": version("torch")},
        "threads": torch.get_num_threads(),
        "load_before": load,
        "rounds": rounds,
        "rows": rows,
    }
    print(table(result))
    if not given.quick:
        keep(result, RESULT, PAGE, "cost", table(result))
    return 0


def compared(model: Model, rounds: int) -> list[dict[str, Any]]:
    """Rows of the table: predictions and measurements of training and generation, in turns."""
    spec, training = preset(model.name), Training()
    assert isinstance(spec, Transformer)
    shape = BatchShape(model.rows, image_tokens(spec) or model.length, model.source)
    precision = choose(training.precision, CPU, spec.d_model).precision
    works = {
        f"training, {shape}, {precision}": (lambda: training_seconds(spec, shape, training, CPU), _step(spec, shape))
    }
    if model.prompt:
        predict = lambda: generation_seconds(spec, model.prompt, NEW, CPU)  # noqa: E731
        works[f"{NEW} tokens after {model.prompt}, fp32"] = (predict, _generation(spec, model.prompt))
    rows = []
    for work, (predict, measure) in works.items():
        predicted, measured = [], []
        for _ in range(rounds):
            predicted.append(predict())
            measured.append(median(measure() for _ in range(3)))
            print(f"{model.name}, {work}: {predicted[-1]:.3g} s, {measured[-1]:.3g} s", file=sys.stderr)
        ratio = median(a / b for a, b in zip(predicted, measured, strict=True))
        rows.append(
            {
                "model": model.name,
                "work": work,
                "predicted": median(predicted),
                "measured": median(measured),
                "ratio": ratio,
            }
        )
    return rows


def _step(spec: Transformer, shape: BatchShape) -> Callable[[], float]:
    """Return a function that takes a training step and returns its seconds."""
    stepper = Stepper(build(spec).train(), Labels(), Training(), ALONE)
    batch = batch_of(spec, shape)

    def take() -> None:
        stepper.take([batch], 1e-5).loss.item()

    return _timed(take)


def _generation(spec: Transformer, prompt: int) -> Callable[[], float]:
    model, ids = build(spec).eval(), torch.randint(spec.vocab_size, (1, prompt))
    bos = 0 if spec.is_encoder_decoder else None
    return _timed(lambda: generate(model, ids, bos_id=bos, max_new_tokens=NEW))


def _timed(run: Callable[[], object]) -> Callable[[], float]:
    run()  # warm

    def seconds() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return seconds


def table(result: dict[str, Any]) -> str:
    """The table in Markdown, with what it was measured on."""
    lines = ["| model | work | predicted | measured | ratio |", "|---|---|---:|---:|---:|"]
    lines += [
        f"| {row['model']} | {row['work']} | {row['predicted']:.2f} s | {row['measured']:.2f} s | {row['ratio']:.2f} |"
        for row in result["rows"]
    ]
    where, code = result["machine"], result["code"]
    return "\n".join(
        [
            *lines,
            "",
            f"Measured by `python -m bench cost` on {result['date']}: {where['processor']}, {where['cores']} cores, "
            f"{result['threads']} threads, PyTorch {result['versions']['torch']}, commit {code['commit']}; medians of "
            f"{result['rounds']} turns, load {result['load_before']} before.",
        ]
    )
