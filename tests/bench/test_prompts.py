"""`python -m bench prompts`: its counts and its table."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bench import machine, prompts


def test_flops_match_the_products() -> None:
    model = prompts.model_of("fp32", prompts.QUICK)
    ids = torch.zeros(2, 16, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.step(ids, model.start(2))
    pairs = int(torch.ones(16, 16).tril().sum()) * 2 * 2  # of both layers and prompts
    attention = pairs * 2 * 2 * 64  # multiplications and additions, of keys and of values; the counter leaves them out
    assert counter.get_total_flops() + attention == prompts.flops(model, 2, 16)


def test_a_quick_run_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert prompts.main(["--quick"]) == 0
    printed = capsys.readouterr().out
    assert "| 2 × 16 | int4 |" in printed and "≥ 80%" in printed and machine.describe()["processor"] in printed
