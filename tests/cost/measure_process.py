"""Trains a few steps in a process of its own, and prints by how many bytes it grew beside the prediction, as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # every optimizer imports it at its first step, 70 MiB

from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.core.ranks import ALONE
from qkv.cost.flops import Shape
from qkv.cost.memory import predict
from qkv.experiments.memory_check import plan_of
from qkv.families import preset
from qkv.models.build import build
from qkv.training.objective import NextToken, SequenceToSequence
from qkv.training.settings import Training
from qkv.training.step import Stepper


def status(name: str) -> int:
    """A line of the kernel's account of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def main(name: str, sizes: dict[str, Any], rows: int, length: int, settings: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    spec, training = preset(name, **sizes), Training.from_dict(settings)
    pairs = spec.is_encoder_decoder
    shape = Shape(rows, length, length if pairs else 0)
    ids = torch.zeros(rows, length, dtype=torch.int64)
    layout = Layout.from_lengths([length, *[length - pairs] * (rows - 1)], length)
    inputs = {"ids": ids, "layout": layout} | ({"target": ids, "target_layout": layout} if pairs else {})
    batch = Batch(inputs, ids, {"loss": ids.numel()}, shape.tokens, shape.tokens)
    objective = SequenceToSequence() if pairs else NextToken()
    before = status("VmRSS")
    stepper = Stepper(build(spec).train(), objective, training, ALONE)
    for _ in range(3):
        stepper.take([batch], 1e-3)
    grown = status("VmHWM") - before
    memory = predict(spec, shape, plan_of(training, spec, torch.device("cpu"), objective, padded=pairs))
    assert memory is not None
    print(json.dumps({"grown": grown, "predicted": memory.peak}))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
