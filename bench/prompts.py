"""`python -m bench prompts`: how fast GPT-2 124 M reads prompts, as a share of a large product's FLOP/s probed beside it.

Prompts are 16 of 128 tokens, and one of 4,096 (positions reach that far here). FLOPs count all products of matrices:
of the layers for every token, of attention for the pairs that are not masked, and of the head for the last token.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

import qkv
from qkv.generation import generate
from qkv.nn.models.quantized.quantize import quantize
from qkv.nn.models.transformer import TransformerModel
from qkv.nn.quantization.scheme import Scheme

from . import machine
from .page_tables import keep
from .probes import Probe

RESULT = Path(__file__).resolve().parent / "results" / "prompts" / "gpt2.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
SIZES = {"d_model": 768, "n_layers": 12, "n_heads": 12, "d_ff": 3072, "vocab_size": 50257, "max_positions": 4097}
QUICK = {**SIZES, "d_model": 64, "n_layers": 2, "n_heads": 2, "d_ff": 128, "vocab_size": 100, "max_positions": 65}
PROMPTS = ((16, 128), (1, 4096))
PRECISIONS = ("fp32", "bf16", "int8", "int4")
ASKED = {"fp32": 0.8, "bf16": 0.5}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench prompts", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a tiny model, one round, nothing kept")
    given = parser.parse_args(words)
    torch.set_num_threads(given.threads)
    sizes, prompts = (QUICK, ((2, 16), (1, 64))) if given.quick else (SIZES, PROMPTS)
    load, probe = machine.load(), Probe(128, 1) if given.quick else Probe(1024, 64)
    rows = [
        row
        for precision in PRECISIONS
        for row in measure(model_of(precision, sizes), precision, prompts, 1 if given.quick else given.rounds, probe)
    ]
    result = {**machine.stamp(), "load_before": load, "threads": given.threads, "rounds": given.rounds, "rows": rows}
    print(table(result))
    if not given.quick:
        RESULT.parent.mkdir(exist_ok=True)
        keep(result, RESULT, PAGE, "prompts", table(result))
    return 0


def model_of(precision: str, sizes: dict[str, int]) -> TransformerModel:
    """The model with random weights in a precision; activations of 8- and 4-bit weights are in 8 bits."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = qkv.build(qkv.preset("gpt", **sizes), dtype=dtype, seed=0).eval()
    assert isinstance(model, TransformerModel)
    if precision in ("int8", "int4"):
        group = None if precision == "int8" else 32
        scheme = Scheme(weights=precision, group_size=group, activations="int8")  # type: ignore[arg-type]
        quantize(model, scheme, embeddings=True, head=True)
    return model


def measure(
    model: TransformerModel, precision: str, prompts: tuple[tuple[int, int], ...], rounds: int, probe: Probe
) -> list[dict[str, Any]]:
    """Seconds until the first token of each prompt, and the FLOP/s of large products between the readings."""
    found = []
    for batch, tokens in prompts:
        ids = torch.arange(batch * tokens).view(batch, tokens) * 7 % 97
        generate(model, ids, max_new_tokens=1)
        seconds, peaks = [], []
        for _ in range(rounds):
            start = time.perf_counter()
            generate(model, ids, max_new_tokens=1)
            seconds.append(round(time.perf_counter() - start, 4))
            peaks.append(probe()["gemm_bf16" if precision == "bf16" else "gemm_fp32"])
        count = flops(model, batch, tokens)
        found.append(
            {
                "precision": precision,
                "prompts": [batch, tokens],
                "seconds": seconds,
                "flops": count,
                "peak": round(median(peaks) * 1e9),
            }
        )
    return found


def flops(model: TransformerModel, batch: int, tokens: int) -> int:
    """FLOPs of the products of a prompt, up to its first new token."""
    blocks, width = model.spec.decoder.blocks, model.spec.d_model  # type: ignore[union-attr]
    matrices = sum(4 * width**2 + 2 * width * block.feedforward.d_ff for block in blocks)  # type: ignore[union-attr]
    pairs = tokens * (tokens + 1) // 2 * len(blocks)
    return 2 * batch * (tokens * matrices + 2 * pairs * width + width * model.spec.vocab_size)


def table(result: dict[str, Any]) -> str:
    """The table in Markdown, with what it was measured on."""
    lines = [
        "| prompts | weights | s | tokens/s | GFLOP/s | of a large product's | goal |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for row in result["rows"]:
        (batch, tokens), seconds = row["prompts"], median(row["seconds"])
        rate, precision = row["flops"] / seconds, row["precision"]
        share, asked = rate / row["peak"], ASKED.get(row["precision"])
        of = f"{share:.0%} of {row['peak'] / 1e9:,.0f}" if asked else ""
        goal = "" if asked is None else f"≥ {asked:.0%}: {'reached' if share >= asked else '**not reached**'}"
        lines.append(
            f"| {batch} × {tokens:,} | {precision} | {seconds:.2f} | {batch * tokens / seconds:,.0f} | {rate / 1e9:,.0f} "
            f"| {of} | {goal} |"
        )
    where, code = result["machine"], result["code"]
    lines += [
        "",
        f"Measured by `python -m bench prompts` on {result['date']}: {where['processor']} "
        f"({', '.join(where['instructions'])}), {where['cores']} cores, {result['threads']} threads, PyTorch "
        f"{result['versions']['torch']}, commit {code['commit']}; medians of {result['rounds']} readings; load average "
        f"{result['load_before']} before; activations are int8 where weights are int8 or int4.",
    ]
    return "\n".join(lines)
