"""Custom operators are registered in time: on their first call, with their gradients' operators, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FIRST_CALL = """
import torch, qkv
from qkv.core.graphs import Operator
import qkv.nn.kernels.cpu.tiled
assert {"tiled", "tiled_backward"} <= Operator.waiting.keys()
x = torch.randn(1, 8, 1, 8)
qkv.attend(x, x, x, backend="tiled")
assert not {"tiled", "tiled_backward"} & Operator.waiting.keys()
torch.ops.qkv.tiled_backward
"""

COMPILED_STEP = """
import torch, qkv
torch.set_num_threads(1)
q, k, v = torch.randn(3, 1, 64, 2, 16, requires_grad=True).unbind()
attend = torch.compile(lambda q, k, v: qkv.attend(q, k, v, pattern=qkv.causal(), backend="tiled").square().sum())
loss = attend(q, k, v)
print(*(f"{x.sum():.4f}" for x in (loss, *torch.autograd.grad(loss, (q, k, v)))))
"""


def run(code: str, **environment: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_operator_is_registered_with_its_gradients_operators() -> None:
    run(FIRST_CALL)


@pytest.mark.slow
def test_a_compiled_backward_pass_from_the_cache_finds_its_operators(tmp_path: Path) -> None:
    """A second process reads the backward pass from the cache without tracing it."""
    code = COMPILED_STEP.replace("import torch, qkv", "import torch, qkv; torch.manual_seed(0)")
    first, second = (run(code, TORCHINDUCTOR_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert first == second and len(first.split()) == 4
