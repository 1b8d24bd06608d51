"""`python -m bench batching`: tokenizing and batching beside the step of training that they prepare.

Recipes train on real data, on two threads. For each step the loop's waiting for its batches is timed. The work itself,
most of which a thread does while the model computes, is then measured alone: the CPU time of all threads in which a pass
over the data is read, tokenized and batched. In the first pass texts are tokenized, images and sounds are decoded; later
passes use what is cached of that.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any
from unittest.mock import patch

import qkv
from qkv.core.batch import Batch
from qkv.data.loader.stream import Stream, stream

from . import machine
from .corpora import folder, missing
from .page_tables import keep

RESULT = Path(__file__).resolve().parent / "results" / "batching" / "shares.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
THREADS, ASKED = 2, 0.02
SHARES = ("waiting", "work, first pass", "work, later passes")  # of a step's time
NO_LIMIT = 1_000_000  # steps
ONLY_TRAINED = {
    "training.threads": THREADS,
    "training.eval_every": NO_LIMIT,
    "training.save_every": NO_LIMIT,
    "training.log_every": NO_LIMIT,
    "evaluation.examples": 8,
    "evaluation.test_examples": 8,
}
"""Settings with which nothing but steps falls between the first step and the last."""


@dataclass(frozen=True)
class Case:
    """A recipe and its data: the paths of settings in a corpus, and other settings."""

    name: str
    recipe: str
    corpus: str = ""
    paths: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        return {**{key: str(folder(self.corpus) / path) for key, path in self.paths.items()}, **self.changes}


SPOKEN = {"data.kind": "sounds", "data.label": "([0-9])_[a-z]+_[0-9]+[.]wav", "data.test": "_[0-4][.]wav"}
CASES = (
    Case("language model, tiny Shakespeare", "lm", "tinyshakespeare", {"data.path": "input.txt.gz"}),
    Case(
        "translation, Multi30k (BPE dropout)",
        "translate",
        "multi30k",
        {"data.source": "train.en.gz", "data.target": "train.de.gz"},
        {"generation.num_beams": 1, "generation.max_new_tokens": 4},
    ),
    Case(
        "sentences in classes, SST-2",
        "classify",
        "sentence-classification",
        {"data.path": "stsa.binary.train.gz"},
        {"data.kind": "labelled"},
    ),
    Case(
        "images, CIFAR-10",
        "vit",
        "cifar10-jpg",
        {"data.path": "cifar10_train.tar.xz", "data.test_path": "cifar10_test.tar.xz"},
        {
            "data.kind": "images",
            "model.image": [32, 32],
            "model.patch": [4, 4],
            "model.channels": 3,
            "model.d_model": 128,
            "model.d_ff": 256,
            "task.augment": [{"kind": "random-crop", "padding": 4}, "flip"],
            "batching.tokens": 4160,
        },
    ),
    Case("sounds, spoken digits", "speech", "fsdd", {"data.path": "fsdd_0-24.tar.xz"}, SPOKEN),
)
TINY = {"model.d_model": 16, "model.n_layers": 1, "model.n_heads": 1, "model.d_ff": 16, "batching.tokens": 256}
QUICK = (Case("images, digits", "vit", changes=TINY),)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench batching", description=__doc__)
    parser.add_argument("--steps", type=int, default=300, help="of each training, of which the first tenth is left out")
    parser.add_argument("--only", default="", help="a part of the names of cases; nothing kept")
    parser.add_argument("--quick", action="store_true", help="a tiny model and few steps, nothing kept")
    given = parser.parse_args(words)
    load, rows = machine.load(), []
    for case in QUICK if given.quick else CASES:
        if given.only not in case.name:
            continue
        if case.corpus and (why := missing(case.corpus)):
            print(f"{case.name} is left out: {why}", file=sys.stderr)
            continue
        print(case.name, file=sys.stderr)
        rows.append(measured(case, 20 if given.quick else given.steps))
    result = {**machine.stamp(), "load_before": load, "rows": rows}
    print(table(result))
    if not given.quick and not given.only:
        RESULT.parent.mkdir(exist_ok=True)
        keep(result, RESULT, PAGE, "batching", table(result))
    return 0


class Waits:
    """When the training loop asked its stream for each batch, and when it got it."""

    def __init__(self) -> None:
        self.of: dict[int, list[tuple[float, float]]] = {}
        self._next = Stream.__next__

    def next(self, batches: Stream) -> Batch:
        asked = time.perf_counter()
        batch = self._next(batches)
        self.of.setdefault(id(batches), []).append((asked, time.perf_counter()))
        return batch

    def of_training(self) -> tuple[list[float], list[float]]:
        """Seconds of each step but the first tenth, and of the waiting in it. Streams for evaluation are shorter."""
        times = max(self.of.values(), key=len)
        times = times[len(times) // 10 :]
        steps = [after - before for (before, _), (after, _) in pairwise(times)]
        return steps, [got - asked for asked, got in times[:-1]]


def measured(case: Case, steps: int) -> dict[str, Any]:
    """Train for some steps, and pass over the same data again without a model."""
    waits = Waits()
    limits = {"training.max_steps": steps, "training.max_epochs": None}
    with tempfile.TemporaryDirectory() as out:
        # a function, and no object, becomes a method
        with patch.object(Stream, "__next__", lambda batches: waits.next(batches)):
            run = qkv.train(case.recipe, out, changes={**case.settings(), **ONLY_TRAINED, **limits}, progress=False)
        taken, waiting = waits.of_training()
        return {
            "case": case.name,
            "recipe": case.recipe,
            "parameters": sum(p.numel() for p in run.model.parameters()),
            "step": median(taken),
            "waiting": mean(waiting),
            "longest_wait": max(waiting),
            "work": work(run),
        }


def work(run: Any, passes: int = 2) -> list[float]:
    """CPU seconds of all threads for each batch of the first passes over a run's training data."""
    recipe = run.recipe
    batching = recipe.batching.replace(workers=0)  # everything when it is asked for
    seconds, counts, batch = [0.0] * passes, [0] * passes, None
    with stream(
        recipe.data,
        run.tokenizer,
        batching,
        seq2seq=run.model.spec.is_encoder_decoder,
        task=recipe.task,
        seed=recipe.seed,
        epochs=passes,
    ) as batches:
        while True:
            begin = time.process_time()
            batch = next(batches, None)
            if batch is None:
                return [total / n for total, n in zip(seconds, counts, strict=True)]
            seconds[batch.position["epoch"]] += time.process_time() - begin
            counts[batch.position["epoch"]] += 1


def table(result: dict[str, Any]) -> str:
    """The table in Markdown, with what it was measured on."""
    lines = [
        f"| recipe and data | parameters | step, ms | {' | '.join(SHARES)} | goal: ≤ {ASKED:.0%} |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for row in result["rows"]:
        shares = [row["waiting"] / row["step"], *(seconds / row["step"] for seconds in row["work"])]
        above = [name for name, share in zip(SHARES, shares, strict=True) if share > ASKED]
        reached = f"**not reached**: {', '.join(above)}" if above else "reached"
        lines.append(
            f"| `{row['recipe']}`: {row['case']} | {row['parameters']:,} | {row['step'] * 1e3:,.0f} | "
            f"{' | '.join(f'{share:.1%}' for share in shares)} | {reached} |"
        )
    where = result["machine"]
    return "\n".join(
        [
            *lines,
            "",
            f"Measured by `python -m bench batching` on {result['date']}: {where['processor']} "
            f"({', '.join(where['instructions'])}), {THREADS} threads of {where['cores']} cores, Python "
            f"{result['versions']['python']}, PyTorch {result['versions']['torch']}, commit {result['code']['commit']}, "
            f"load {result['load_before']} before. Waiting is a share of the time of a step, and work its CPU time in "
            "relation to that time.",
        ]
    )
