"""Trains a few steps in a separate process, and prints by how many bytes it grew beside the prediction, as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from qkv.cli import allocator

allocator.keep_pages()  # as the command line does

import torch  # noqa: E402
import torch._dynamo  # noqa: E402  (every optimizer imports it at its first step, 70 MiB)

from qkv.core.batch import Batch  # noqa: E402
from qkv.core.layout import Layout  # noqa: E402
from qkv.core.ranks import ALONE  # noqa: E402
from qkv.io.families import preset  # noqa: E402
from qkv.nn.cost.flops import BatchShape  # noqa: E402
from qkv.nn.cost.memory import predict  # noqa: E402
from qkv.nn.layers.lora import LoRA, adapt  # noqa: E402
from qkv.nn.models.build import build  # noqa: E402
from qkv.nn.models.quantized.quantize import blank  # noqa: E402
from qkv.nn.quantization.scheme import scheme_of  # noqa: E402
from qkv.runs.train.memory_check import plan_of  # noqa: E402
from qkv.training.objective import NextToken, SequenceToSequence  # noqa: E402
from qkv.training.settings import Training  # noqa: E402
from qkv.training.step import Stepper  # noqa: E402

CPU = torch.device("cpu")


def status(name: str) -> int:
    """A line of the kernel's account of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def fill_codes(model: Any, weights: str) -> None:
    """Give a model on the meta device quantized weights and zeros beside them, as loading does, a tensor at a time."""
    blank(model, scheme_of(weights))
    model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.view(torch.uint8).zero_() if tensor.dtype.itemsize == 1 else tensor.zero_()
    model.tie()


def main(
    name: str, sizes: dict[str, Any], rows: int, length: int, settings: dict[str, Any], weights: str | None = None
) -> None:
    torch.set_num_threads(1)
    spec, training = preset(name, **sizes), Training.from_dict(settings)
    pairs = spec.is_encoder_decoder
    shape = BatchShape(rows, length, length if pairs else 0)
    ids = torch.zeros(rows, length, dtype=torch.int64)
    layout = Layout.from_lengths([length, *[length - pairs] * (rows - 1)], length)
    inputs = {"ids": ids, "layout": layout} | ({"target": ids, "target_layout": layout} if pairs else {})
    batch = Batch(inputs, ids, {"loss": ids.numel()}, shape.tokens, shape.tokens)
    objective = SequenceToSequence() if pairs else NextToken()
    adapter = None if weights is None else LoRA(rank=4)
    before = status("VmRSS")
    model = build(spec, device="cpu" if weights is None else "meta").train()
    if weights is not None:
        fill_codes(model, weights)
        adapt(model, LoRA(rank=4))
    stepper = Stepper(model, objective, training, ALONE)
    for _ in range(3):
        stepper.take([batch], 1e-3)
    grown = status("VmHWM") - before
    memory = predict(
        spec, shape, plan_of(training, spec, CPU, objective, padded=pairs, adapter=adapter, weights=weights)
    )
    assert memory is not None
    print(json.dumps({"grown": grown, "predicted": memory.peak}))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
