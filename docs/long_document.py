"""A document of 100,000 tokens through a decoder with a window of 256, on the CPU: one step of training, then reading it
as a prompt and generating. Prints what each took and the process's peak of memory: `python docs/long_document.py [TOKENS]`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

import qkv
from qkv import causal, window
from qkv.nn.cost.kv_cache import cache_bytes

TOKENS, NEW, WINDOW = 100_000, 32, 256
SIZES = {"vocab_size": 1000, "d_model": 128, "n_layers": 2, "n_heads": 4, "d_ff": 352}
PATTERN = "decoder.blocks.*.attention.pattern"


def main(tokens: int = TOKENS) -> dict[str, float]:
    """Seconds of each part; MiB of the cache, which a window keeps at its size, and of the process at its peak."""
    torch.manual_seed(0)
    spec = qkv.preset("llama", **SIZES, max_positions=tokens + NEW).replace({PATTERN: causal() & window(WINDOW)})
    model = qkv.build(spec).train()
    optimizer = torch.optim.AdamW(model.parameters())
    document = torch.randint(0, SIZES["vocab_size"], (1, tokens))

    start = time.perf_counter()
    sums = model(document[:, :-1], labels=document[:, 1:])
    (sums.loss / sums.n_labels).backward()
    optimizer.step()
    trained = time.perf_counter()
    text = model.eval().generate(document, max_new_tokens=NEW)
    generated = time.perf_counter()

    assert text.shape == (1, tokens + NEW)
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())
    return {
        "training, s": trained - start,
        "reading and generating, s": generated - trained,
        "cache, MiB": cache_bytes(spec, tokens, dtype=torch.float32) / 2**20,
        "peak, MiB": peak_kib() / 2**10,
    }


def peak_kib() -> int:
    """The most memory that this process has held; what `getrusage` says may be that of the process it came from."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:]))))
