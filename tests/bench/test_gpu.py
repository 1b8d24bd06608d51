"""`python -m bench gpu`: its checks on the CPU with tiny sizes, and what it says without a GPU."""

import pytest
import torch
from bench.gpu import TINY, checks, main
from fast_subset import fast

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "part", fast(["kernels", "demo", "GPT-2", "mixture", "decoding", "ranks"], "mixture", "decoding", "ranks")
)
def test_the_checks_are_right_on_the_cpu(part: str) -> None:
    found = list(checks(CPU, TINY, part))
    assert found and all(one.right for one in found), [one for one in found if not one.right]


def test_a_check_that_fails_is_wrong_and_the_others_are_still_tried(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("bench.gpu.generate", lambda *given, **named: 1 / 0)
    monkeypatch.setattr("bench.gpu.check_count", lambda *given: None)
    assert main(["--dry-run", "--only", "decoding"]) == 1
    assert "| decoding | ZeroDivisionError: division by zero | no error | **wrong** |" in capsys.readouterr().out
    assert main(["--dry-run", "--only", "ranks"]) == 1
    assert "| ranks: --nproc | accepted | one sentence | **wrong** |" in capsys.readouterr().out


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main([]) == 2
    assert (
        capsys.readouterr().err
        == "bench gpu needs a GPU that PyTorch sees, and there is none; --dry-run tries it on the CPU\n"
    )
