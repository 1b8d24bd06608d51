"""`python -m bench gpu`: the checks for a machine with one GPU, in a few minutes.

It compares kernels with the reference, forward and backward, and decoding with the CPU. It takes steps of the demo,
GPT-2 and a mixture, and compares their losses with the CPU's and their memory with the prediction. More ranks than GPUs
have to be refused. `--dry-run` runs the same checks on the CPU, with tiny sizes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

import qkv
from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.core.ranks import ALONE
from qkv.generation.generate import generate
from qkv.nn.attention.attend import attend
from qkv.nn.cost.flops import BatchShape
from qkv.nn.cost.memory import MemorySettings, predict
from qkv.nn.kernels.backends import BACKENDS
from qkv.nn.patterns.basic import Full, Pattern, causal, window
from qkv.runs.recipes.recipe import Recipe
from qkv.training.objective import NextToken
from qkv.training.parallel.launch import check_count
from qkv.training.parallel.world import World
from qkv.training.settings import Training
from qkv.training.step import Stepper

from . import machine

LOSSES, MEMORY, TOKENS = 0.02, 0.25, 0.9  # allowed: error of losses and of memory, share of equal tokens
MOE = {"kind": "moe", "n_experts": 8, "top_k": 2, "d_ff": 512}


@dataclass(frozen=True)
class Sizes:
    """rows and tokens of a batch, widths of models, tokens to decode, and tokens of an attention call."""

    rows: int = 8
    tokens: int = 512
    gpt2: dict[str, Any] | None = None
    decoded: int = 64
    attended: int = 1024


TINY = Sizes(2, 16, {"vocab_size": 64, "d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 64}, 4, 32)


@dataclass(frozen=True)
class Checked:
    """One check: what was found, what is allowed, and whether it is."""

    name: str
    found: str
    allowed: str
    right: bool


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench gpu", description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, with tiny sizes")
    parser.add_argument("--only", default="", help="checks with this word in their names")
    given = parser.parse_args(words)
    if not given.dry_run and not torch.cuda.is_available():
        print(
            "bench gpu needs a GPU that PyTorch sees, and there is none; --dry-run tries it on the CPU", file=sys.stderr
        )
        return 2
    device = torch.device("cpu" if given.dry_run else "cuda")
    what = machine.describe()["processor"] if given.dry_run else torch.cuda.get_device_name(device)
    print(f"{what}, PyTorch {torch.__version__}, commit {machine.code()['commit']}\n")
    print("| check | found | allowed | |\n|---|---|---|---|")
    wrong = 0
    for one in checks(device, TINY if given.dry_run else Sizes(), given.only):
        wrong += not one.right
        print(f"| {one.name} | {one.found} | {one.allowed} | {'right' if one.right else '**wrong**'} |", flush=True)
    print(f"\n{wrong} wrong" if wrong else "\nall right")
    return 1 if wrong else 0


def checks(device: torch.device, sizes: Sizes, only: str = "") -> Iterator[Checked]:
    """Run the checks. One that raises an exception is wrong, with its message."""
    parts: dict[str, Callable[[], Iterator[Checked]]] = {
        "kernels": lambda: kernels(device, sizes),
        "demo": lambda: training("demo", device, sizes),
        "GPT-2": lambda: training("GPT-2", device, sizes),
        "mixture": lambda: training("mixture", device, sizes),
        "decoding": lambda: decoding(device, sizes),
        "ranks": lambda: ranks(device),
    }
    for name, part in parts.items():
        if only not in name:
            continue
        try:
            yield from part()
        except Exception as error:  # the others are still tried
            yield Checked(name, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", "no error", False)


# -- kernels -----------------------------------------------------------------------------------------------------------

PATTERNS: dict[str, Pattern] = {"full": Full(), "causal": causal(), "window": window(16)}


def kernels(device: torch.device, sizes: Sizes) -> Iterator[Checked]:
    """Every backend that serves a call, in the usual dtypes, beside the reference in float64. It may err twice as much as
    the reference in the same dtype, and thrice in gradients."""
    for dtype in (torch.float32, torch.bfloat16):
        for name, pattern in PATTERNS.items():
            exact = _attended("reference", pattern, torch.float64, device, sizes)
            plain = _attended("reference", pattern, dtype, device, sizes)
            floor = 1e-5 if dtype == torch.float32 else 2e-3
            for backend in BACKENDS:
                try:
                    found = _attended(backend, pattern, dtype, device, sizes)
                except ValueError:  # it can't serve this call, and says why
                    continue
                errors = [_distance(*pair) for pair in zip(found, exact, strict=True)]
                limits = [
                    max(factor * _distance(*pair), floor)
                    for factor, pair in zip((2, 3, 3, 3), zip(plain, exact, strict=True), strict=True)
                ]
                right = all(error <= limit for error, limit in zip(errors, limits, strict=True))
                title = f"kernel {backend}, {name}, {str(dtype).removeprefix('torch.')}"
                yield Checked(title, _scientific(errors), _scientific(limits), right)


def _attended(backend: str, pattern: Pattern, dtype: torch.dtype, device: torch.device, sizes: Sizes) -> list[Tensor]:
    """The output of attention, and the gradients of queries, keys and values."""
    draw = torch.Generator().manual_seed(0)
    shapes = [(2, sizes.attended, heads, 64) for heads in (4, 2, 2)]
    q, k, v = (torch.randn(shape, generator=draw).to(device, dtype).requires_grad_() for shape in shapes)
    out = attend(q, k, v, pattern=pattern, backend=backend)
    out.backward(torch.randn(out.shape, generator=draw).to(device, dtype))
    return [x.detach() for x in (out, q.grad, k.grad, v.grad) if x is not None]


def _distance(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


def _scientific(numbers: list[float]) -> str:
    return " ".join(f"{number:.0e}" for number in numbers)


# -- training ----------------------------------------------------------------------------------------------------------


def _spec(name: str, sizes: Sizes) -> Any:
    if name == "demo":
        return Recipe.load("localise").model.spec(1500)
    spec = qkv.preset("gpt2", **{"max_positions": 2 * sizes.tokens, "dropout": 0.0, **(sizes.gpt2 or {})})
    return spec.replace({"decoder.blocks.*.feedforward": MOE}) if name == "mixture" else spec


def training(name: str, device: torch.device, sizes: Sizes) -> Iterator[Checked]:
    """Three steps in bf16 on the device: losses beside those in fp32 on the CPU, seconds, and the peak of memory."""
    spec = _spec(name, sizes)
    spec = type(spec).from_dict(_without_dropout(spec.to_dict()))
    wanted, _, _ = _steps(spec, torch.device("cpu"), "fp32", sizes)
    losses, seconds, peak = _steps(spec, device, "bf16", sizes)
    error = max(abs(a / b - 1) for a, b in zip(losses, wanted, strict=True))
    yield Checked(f"{name}: losses of 3 steps", f"{error:.1e} from fp32 on the CPU", f"{LOSSES:.0e}", error <= LOSSES)
    rate = sizes.rows * sizes.tokens / seconds
    yield Checked(f"{name}: a step", f"{1e3 * seconds:.1f} ms, {rate:,.0f} tokens/s", "", True)
    source = sizes.tokens if spec.is_encoder_decoder else 0
    settings = MemorySettings(device=torch.device("cpu"), dtype=torch.bfloat16, for_gpu=device.type == "cuda")
    predicted = predict(spec, BatchShape(sizes.rows, sizes.tokens, source), settings)
    if predicted is None:
        yield Checked(f"{name}: memory", "no prediction", "one", False)
    elif peak is None:
        yield Checked(f"{name}: memory", f"{predicted.live / 1e6:,.1f} MB predicted", "measured on GPUs only", True)
    else:
        off = predicted.live / peak - 1
        found = f"{predicted.live / 1e6:,.0f} MB predicted, {peak / 1e6:,.0f} measured"
        yield Checked(f"{name}: memory", f"{found} ({off:+.0%})", f"{MEMORY:.0%}", abs(off) <= MEMORY)


def _steps(spec: Any, device: torch.device, precision: str, sizes: Sizes) -> tuple[list[float], float, float | None]:
    """The losses of three steps, the seconds of the last one, and the most bytes that tensors had."""
    model = qkv.build(spec, device=device, seed=0).train()
    given = {"precision": precision, "compile": False, "optimizer": {"kind": "adamw", "lr": 1e-4}}
    stepper = Stepper(model, NextToken(), Training.from_dict(given), ALONE)
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(3, spec.vocab_size, (sizes.rows, sizes.tokens + 1), generator=draw)
    layout = Layout.full(sizes.tokens)
    inputs: dict[str, Any] = {"ids": ids[:, :-1].contiguous(), "layout": layout}
    if spec.is_encoder_decoder:
        inputs |= {"target": inputs["ids"], "target_layout": layout}
    tokens = sizes.rows * sizes.tokens
    batch = Batch(inputs, labels=ids[:, 1:].contiguous(), counts={"loss": tokens}, tokens=tokens)
    losses, seconds = [], 0.0
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(3):
        with _timed(device) as took:
            losses.append(stepper.take([batch], lr=1e-4).loss.item())
        seconds = took[0]
    peak = float(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else None
    return losses, seconds, peak


@contextmanager
def _timed(device: torch.device) -> Iterator[list[float]]:
    took = [time.perf_counter()]
    yield took
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    took[0] = time.perf_counter() - took[0]


def _without_dropout(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: 0.0 if key == "dropout" else _without_dropout(value) for key, value in tree.items()}
    return [_without_dropout(value) for value in tree] if isinstance(tree, list | tuple) else tree


# -- decoding and ranks ------------------------------------------------------------------------------------------------


def decoding(device: torch.device, sizes: Sizes) -> Iterator[Checked]:
    """Greedy decoding in fp32 of a model with random weights, beside the CPU."""
    spec, rows = _spec("GPT-2", sizes), 4
    prompt = torch.randint(3, spec.vocab_size, (rows, 8), generator=torch.Generator().manual_seed(0))
    chosen: list[list[int]] = []
    for where in (torch.device("cpu"), device):
        model = qkv.build(spec, device=where, seed=0).eval()
        with _timed(where) as took:
            found = generate(model, prompt.to(where), max_new_tokens=sizes.decoded)
        chosen.append([token for (row,) in found.sequences for token in row])
    rate = rows * sizes.decoded / took[0]
    equal = sum(a == b for a, b in zip(*chosen, strict=True)) / len(chosen[0])
    yield Checked("decoding: tokens", f"{equal:.0%} equal to the CPU's", f"{TOKENS:.0%}", equal >= TOKENS)
    yield Checked("decoding: speed", f"{rate:,.0f} tokens/s in {rows} rows", "", True)


def ranks(device: torch.device) -> Iterator[Checked]:
    """More ranks than there are devices: one sentence."""
    many = (torch.cuda.device_count() if device.type == "cuda" else 1 << 20) + 1
    yield _refused("ranks: --nproc", lambda: check_count(many, device.type))
    if device.type == "cuda":
        with patch.dict(os.environ, LOCAL_RANK=str(many - 1)):
            yield _refused("ranks: torchrun", lambda: World.device(device))


def _refused(name: str, act: Callable[[], Any]) -> Checked:
    try:
        act()
    except ValueError as error:
        return Checked(name, f"refused: {error}", "one sentence", "\n" not in str(error))
    return Checked(name, "accepted", "one sentence", False)
