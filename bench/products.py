"""`python -m bench products`: products of one row and of few, as a share of the memory bandwidth probed beside them.

Each reading goes through copies of a matrix that are together larger than the processor's caches. The contenders take turns,
and after each of their turns memory is read by a sum.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from qkv.nn.kernels.products.formats import Int4, Int8, Weight
from qkv.nn.kernels.products.several import product

from . import machine
from .page_tables import keep
from .probes import best

RESULT = Path(__file__).resolve().parent / "results" / "products" / "two-threads.json"
PAGE = Path(__file__).with_name("products.md")
GROUP = 64
SHAPES = {
    "GPT-2 q, k, v": (768, 2304),
    "GPT-2 out": (768, 768),
    "GPT-2 up": (768, 3072),
    "GPT-2 down": (3072, 768),
    "GPT-2 head": (768, 50257),
    "Llama 1.1B q": (2048, 2048),
    "Llama 1.1B up": (2048, 5632),
    "Llama 1.1B down": (5632, 2048),
}
QUICK = {"tiny": (64, 96)}
ROWS = (1, 4, 16)


class Contender(NamedTuple):
    """A way to multiply by a matrix of a format."""

    format: str
    name: str
    multiply: Callable[[Tensor, Any], Tensor]


def _float(x: Tensor, weight: Weight) -> Tensor:
    return product(x, weight)


def _int8(x: Tensor, weight: Weight) -> Tensor:
    return product(x, weight, None, "int8")


CONTENDERS = (
    Contender("fp32", "qkv", _float),
    Contender("fp32", "F.linear", F.linear),
    Contender("bf16", "qkv", _float),
    Contender("bf16", "F.linear", F.linear),
    Contender("int8", "qkv", _float),
    Contender("int8", "qkv, int8 activations", _int8),
    Contender("int4", "qkv", _float),
    Contender("int4", "qkv, int8 activations", _int8),
)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench products", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="readings of each contender, taken in turns")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, nothing kept")
    given = parser.parse_args(words)
    torch.set_num_threads(given.threads)
    rounds, load = 2 if given.quick else given.rounds, machine.load()
    shapes, mib = (QUICK, 1) if given.quick else (SHAPES, 160)
    rows = [row for name, shape in shapes.items() for row in measure(name, shape, rounds, mib)]
    result = {
        **machine.stamp(),
        "load_before": load,
        "threads": given.threads,
        "rounds": rounds,
        "rows": rows,
    }
    print(table(result))
    if not given.quick:
        keep(result, RESULT, PAGE, "products", table(result))
    return 0


def measure(name: str, shape: tuple[int, int], rounds: int, mib: int) -> list[dict[str, Any]]:
    """Microseconds of each contender with each number of rows, and for one row the share of the bandwidth beside it."""
    columns, outs = shape
    memory = torch.ones(mib << 8, 1024)
    print(f"{name}: {columns} × {outs}", file=sys.stderr, flush=True)
    found = []
    for format in dict.fromkeys(contender.format for contender in CONTENDERS):
        own = [contender for contender in CONTENDERS if contender.format == format]
        size = nbytes(weight_of(format, outs, columns))
        weights = [weight_of(format, outs, columns) for _ in range(max(1, (mib << 20) // 2 // size))]
        for rows in ROWS:
            x = torch.randn(rows, columns).to(torch.bfloat16 if format == "bf16" else torch.float32)
            times: dict[str, list[float]] = {contender.name: [] for contender in own}
            shares: dict[str, list[float]] = {contender.name: [] for contender in own}
            for number in range(rounds):
                for contender in own if number % 2 == 0 else reversed(own):
                    seconds = reading(contender, x, weights)
                    read = memory.numel() * 4 / best(memory.sum)
                    times[contender.name].append(seconds)
                    shares[contender.name].append(size / seconds / read)
            found += [
                {
                    "matrix": name,
                    "shape": [columns, outs],
                    "format": format,
                    "rows": rows,
                    "contender": contender.name,
                    "us": round(1e6 * median(times[contender.name]), 1),
                    "share": round(median(shares[contender.name]), 3),
                }
                for contender in own
            ]
    return found


def reading(contender: Contender, x: Tensor, weights: list[Weight]) -> float:
    """Seconds of a product, on average over all weights."""
    with torch.no_grad():
        contender.multiply(x, weights[0])
        start = time.perf_counter()
        for weight in weights:
            contender.multiply(x, weight)
        return (time.perf_counter() - start) / len(weights)


def weight_of(format: str, outs: int, columns: int) -> Weight:
    if format in ("fp32", "bf16"):
        return torch.randn(outs, columns).to(torch.bfloat16 if format == "bf16" else torch.float32)
    scales = torch.rand(outs, columns // min(GROUP, columns))
    if format == "int8":
        return Int8(torch.randint(-128, 128, (outs, columns), dtype=torch.int8), scales)
    return Int4(torch.randint(0, 256, (outs, columns // 2), dtype=torch.uint8), scales)


def nbytes(weight: Weight) -> int:
    """Bytes that a product reads of a matrix: its numbers or codes, and scales."""
    return weight.nbytes if isinstance(weight, Tensor) else weight.codes.nbytes + weight.scales.nbytes


def table(result: dict[str, Any]) -> str:
    """The table in Markdown, with what it was measured on."""
    rows: dict[tuple[str, str, str], dict[int, dict[str, Any]]] = {}
    for row in result["rows"]:
        shape = " × ".join(map(str, row["shape"]))
        rows.setdefault((f"{row['matrix']}, {shape}", row["format"], row["contender"]), {})[row["rows"]] = row
    lines = [
        "| matrix, in × out | weights | product by | µs with 1 row | share of bandwidth | µs with 4 | µs with 16 |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for (matrix, format, contender), found in rows.items():
        one, four, sixteen = (found[number] for number in ROWS)
        lines.append(
            f"| {matrix} | {format} | {contender} | {one['us']:,.0f} | {one['share']:.0%} | {four['us']:,.0f} "
            f"| {sixteen['us']:,.0f} |"
        )
    where, code = result["machine"], result["code"]
    lines += [
        "",
        f"Measured by `python -m bench products` on {result['date']}: {where['processor']} "
        f"({', '.join(where['instructions'])}), {where['cores']} cores, {result['threads']} threads, PyTorch "
        f"{result['versions']['torch']}, commit {code['commit']}; medians of {result['rounds']} readings, taken in turns; "
        f"load average {result['load_before']} before; weights quantized in groups of {GROUP}.",
    ]
    return "\n".join(lines)
