"""Decoding in onnxruntime beside qkv: a GPT-2 of random weights, exported by `qkv convert --to onnx`, greedy, in turns.

python -m bench.onnx_decoding build/gpt2-onnx                  exports it there the first time, then measures
python -m bench.onnx_decoding build/gpt2-int8 --int8           the quantized graphs
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch

import qkv
from qkv.generation import generate
from qkv.runs.export.onnx import to_onnx
from qkv.runs.inference.run import Run

PROMPT, NEW = 64, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder", type=Path, help="where the graphs are or will be")
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--readings", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model = qkv.build(qkv.preset("gpt2", n_layers=given.layers), seed=0).eval()
    if not (given.folder / "model.onnx").exists():
        print(to_onnx(Run(model, None), given.folder, int8=given.int8, tell=print))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = given.threads
    session = onnxruntime.InferenceSession(str(given.folder / "model.onnx"), options)
    prompt = torch.randint(model.vocab_size, (1, PROMPT), generator=torch.Generator().manual_seed(0))
    ways: dict[str, Callable[[int], list[int]]] = {
        "qkv": lambda count: generate(model, prompt, max_new_tokens=count).sequences[0][0],
        "onnxruntime": lambda count: by_onnxruntime(session, prompt.numpy(), count),
    }
    same = ways["qkv"](8) == ways["onnxruntime"](8)
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(given.readings):
        for name, way in ways.items():
            times = [seconds(way, count) for count in (1, 1 + NEW)]
            rates[name].append(NEW / (times[1] - times[0]))
    medians = {name: statistics.median(each) for name, each in rates.items()}
    shown = ", ".join(f"{name} {rate:.1f}" for name, rate in medians.items())
    versions = f"PyTorch {torch.__version__}, onnxruntime {onnxruntime.__version__}, {given.threads} threads"
    print(f"tokens/s, batch 1, medians of {given.readings}: {shown}; {versions}; the same tokens: {same}")
    print(f"onnxruntime / qkv: {medians['onnxruntime'] / medians['qkv']:.2f}")


def seconds(way: Callable[[int], list[int]], count: int) -> float:
    start = time.perf_counter()
    way(count)
    return time.perf_counter() - start


def by_onnxruntime(session: onnxruntime.InferenceSession, ids: np.ndarray, count: int) -> list[int]:
    outputs = [one.name for one in session.get_outputs()]
    empty = np.zeros((1, 12, 0, 64), np.float32)
    past = {one.name: empty for one in session.get_inputs() if one.name.startswith("past_key_values")}
    tokens, before = [], 0
    for _ in range(count):
        after = before + ids.shape[1]
        feed = {"attention_mask": np.ones((1, after), np.int64), "position_ids": np.arange(before, after)[None]}
        out = dict(zip(outputs, session.run(outputs, {"input_ids": ids, **feed, **past}), strict=True))
        ids, before = out.pop("logits")[:, -1:].argmax(-1), after
        past = {name.replace("present", "past_key_values"): tensor for name, tensor in out.items()}
        tokens.append(int(ids[0, 0]))
    return tokens


if __name__ == "__main__":
    main()
