"""The number of threads is what was set, and fused attention keeps its speed."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from qkv.nn.kernels import threads

SET_AND_TIME = """
import sys, time, torch
from torch.nn.functional import scaled_dot_product_attention as attention
from qkv.nn.kernels.threads import set_threads
q = torch.randn(32, 8, 64, 32)

def milliseconds():
    times = []
    for _ in range(30):
        began = time.perf_counter()
        attention(q, q, q)
        times.append(time.perf_counter() - began)
    return sorted(times)[10]

before = milliseconds()
for n in (1, 2, 1, 2):
    set_threads(n)
    assert torch.get_num_threads() == n, n
print(milliseconds() / before)
"""


def run(code: str) -> str:
    environment = {"OMP_NUM_THREADS": "2"}
    from os import environ

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow  # times depend on what else the machine does
def test_fused_attention_keeps_its_speed() -> None:
    assert min(float(run(SET_AND_TIME)) for _ in range(3)) < 1.3


def test_the_number_is_set_without_the_libraries_too(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(threads, "_libraries", lambda: None)
    seen = []
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    threads.set_threads(before)
    threads.set_threads(before + 1)
    assert seen == [before + 1]


@pytest.mark.slow
def test_several_changes_in_turn() -> None:
    code = SET_AND_TIME.replace("range(30)", "range(11)")
    assert float(run(code)) > 0
