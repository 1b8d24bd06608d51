"""`python -m bench onednn`: large products in fp32 by oneDNN beside PyTorch's own (MKL's), and training steps with each.

Both take turns. If `qkv.nn.kernels.products.onednn` doesn't choose oneDNN by itself, the table says so: it is measured
all the same.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional as F

import qkv
from qkv.core.layout import Layout
from qkv.nn.kernels.products import onednn
from qkv.nn.layers.losses import linear_cross_entropy

from . import machine
from .page_tables import keep

RESULT = Path(__file__).resolve().parent / "results" / "onednn" / "amd.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "machine.md"
PRODUCTS = ((128, 768, 3072), (2048, 768, 3072), (2048, 3072, 768))  # rows, inputs, outputs
SIZES = {"d_model": 512, "n_layers": 6, "n_heads": 8, "d_ff": 2048, "max_positions": 256}
VOCABULARIES, ROWS = (8192, 50257), 8
QUICK = {"d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 64, "max_positions": 16}
OURS, THEIRS = "oneDNN", "MKL"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench onednn", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round, nothing kept")
    given = parser.parse_args(words)
    torch.set_num_threads(given.threads)
    rounds, load, chosen = 1 if given.quick else given.rounds, machine.load(), onednn.is_faster()
    rows = [product(*shape, rounds) for shape in (((64, 32, 32),) if given.quick else PRODUCTS)]
    rows += [steps(v, QUICK if given.quick else SIZES, rounds) for v in ((64,) if given.quick else VOCABULARIES)]
    result = {
        **machine.stamp(),
        "load_before": load,
        "threads": given.threads,
        "rounds": rounds,
        "chosen": chosen,
        "rows": rows,
    }
    print(table(result))
    if not given.quick:
        RESULT.parent.mkdir(exist_ok=True)
        keep(result, RESULT, PAGE, "onednn", table(result))
    return 0


def in_turns(work: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each, after one try that isn't counted."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for number in range(rounds + 1):
        for name in work if number % 2 == 0 else reversed(work):
            start = time.perf_counter()
            work[name]()
            if number:
                seconds[name].append(round(time.perf_counter() - start, 6))
    return seconds


def product(rows: int, inputs: int, outputs: int, rounds: int) -> dict[str, Any]:
    """A product with its gradients, ten times a reading."""
    x, weight, bias = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    leaves = [tensor.requires_grad_() for tensor in (x, weight, bias)]
    gradient = torch.randn(rows, outputs)

    def of(multiply: Callable[..., Tensor]) -> Callable[[], object]:
        return lambda: [torch.autograd.grad(multiply(*leaves), leaves, gradient) for _ in range(10)]

    seconds = in_turns({OURS: of(onednn.LinearFunction.apply), THEIRS: of(F.linear)}, rounds)  # type: ignore[arg-type]
    what = f"product with gradients, {rows:,} × {inputs:,} × {outputs:,}"
    return {"what": what, "flops": 10 * 6 * rows * inputs * outputs, "seconds": seconds}


def steps(vocabulary: int, sizes: dict[str, int], rounds: int) -> dict[str, Any]:
    """A training step of a GPT in fp32, with AdamW."""
    model = qkv.build(qkv.preset("gpt", vocab_size=vocabulary, **sizes), seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, vocabulary, (ROWS, sizes["max_positions"]))

    def step(faster: bool) -> None:
        with _chosen(faster):
            hidden = model.decoder(ids, Layout.full(ids.shape[1]))  # type: ignore[operator, union-attr]
            loss = linear_cross_entropy(hidden, model.head.weight, None, ids).loss  # type: ignore[arg-type, union-attr]
            (loss / ids.numel()).backward()
        optimizer.step()
        optimizer.zero_grad()

    seconds = in_turns({OURS: lambda: step(True), THEIRS: lambda: step(False)}, rounds)
    count = sum(parameter.numel() for parameter in model.parameters())
    what = f"training step, {count / 1e6:,.0f} M parameters, vocabulary {vocabulary:,}, {ids.numel():,} tokens"
    return {"what": what, "flops": None, "seconds": seconds}


@contextmanager
def _chosen(faster: bool) -> Any:
    """Within this, oneDNN is chosen or isn't."""
    with patch.object(onednn, "is_faster", lambda: faster):
        yield


def table(result: dict[str, Any]) -> str:
    """The table in Markdown, with what it was measured on."""
    lines = ["| fp32 | oneDNN | MKL | times as fast |", "|---|---:|---:|---:|"]
    for row in result["rows"]:
        ours, theirs = (median(row["seconds"][name]) for name in (OURS, THEIRS))
        shown = [f"{row['flops'] / s / 1e9:,.0f} GFLOP/s" if row["flops"] else f"{s:.2f} s" for s in (ours, theirs)]
        lines.append(f"| {row['what']} | {shown[0]} | {shown[1]} | {theirs / ours:.2f} |")
    where = result["machine"]
    chosen = "chosen here" if result["chosen"] else "not chosen here"
    lines += [
        "",
        f"Measured by `python -m bench onednn` on {result['date']}: {where['processor']} "
        f"({', '.join(where['instructions'])}), {where['cores']} cores, {result['threads']} threads, PyTorch "
        f"{result['versions']['torch']}, commit {result['code']['commit']}; medians of {result['rounds']} readings in "
        f"turns, load {result['load_before']} before; oneDNN is {chosen}.",
    ]
    return "\n".join(lines)
