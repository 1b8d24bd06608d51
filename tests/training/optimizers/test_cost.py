"""What each optimizer costs on a model of ten million parameters: prints the table of docs/training.md.

Times are the processor's, on one thread, so others at work on the machine disturb them little.
"""

import time

import pytest
import torch

import qkv
from qkv.training.optimizers import Optimizer

# The most bytes of state for a parameter of this model, whose tables are 3 % of it.
BYTES = {"sgd": 4.01, "adagrad": 4.01, "adamw": 8.01, "adamw-8bit": 2.3, "adafactor": 0.05, "lion": 4.01, "muon": 4.2}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BYTES)
def test_steps_stay_within_a_time_and_a_number_of_bytes(kind, capsys):
    sizes = {"d_model": 320, "n_layers": 8, "n_heads": 5, "d_ff": 1280, "vocab_size": 1000, "max_positions": 64}
    model = qkv.build(qkv.preset("gpt", **sizes), seed=0)
    parameters = list(model.parameters())
    count = sum(p.numel() for p in parameters)
    assert 9.5e6 < count < 10.5e6
    optimizer = Optimizer.from_dict({"kind": kind, "weight_decay": 0.1}).build(model)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    made, times = torch.Generator().manual_seed(0), []
    for _ in range(6):
        for p in parameters:
            p.grad = torch.randn(p.shape, generator=made) * 1e-3
        began = time.process_time()
        optimizer.step()
        times.append(time.process_time() - began)
    torch.set_num_threads(threads)
    held = sum(t.numel() * t.element_size() for state in optimizer.state.values() for t in state.values()) / count
    with capsys.disabled():
        print(f"\n| `{kind}` | {min(times) * 1e3:.0f} ms | {held:.2f} |", end="")
    assert held < BYTES[kind]
