"""What the Triton kernels refuse, and with which reason."""

from __future__ import annotations

from typing import Any

import flash_worker
import pytest
import torch
from flash_remote import Remote, needs_triton

from qkv.nn.attention.attend import attend
from qkv.nn.kernels import flash
from qkv.nn.kernels.flash import support


@needs_triton
@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"dtype": torch.float64}, "in fp32, fp16 and bf16, not in torch.float64"),
        ({"dtype": torch.bfloat16}, "interpreter does not multiply bf16 correctly"),
        ({"d": 264}, "up to 256 wide, not 264"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_reason(there: Remote, changes: Any, reason: str) -> None:
    assert reason in there(flash_worker.refusal, changes)


def test_without_an_interpreter_a_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    x = torch.randn(1, 4, 2, 16)
    with pytest.raises(ValueError, match=r"needs (a CUDA device|Triton)"):
        attend(x, x, x, backend="flash")
    with pytest.raises(ValueError, match="paged attention can't be computed here: it needs"):
        flash.paged(x, x, x, torch.zeros(1, 1, dtype=torch.int32), torch.tensor([4]))


def test_without_triton_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "find_spec", lambda name: None)
    support._missing_on.cache_clear()
    try:
        x = torch.randn(1, 4, 2, 16)
        with pytest.raises(ValueError, match="it needs Triton, which is not installed"):
            attend(x, x, x, backend="flash")
    finally:
        support._missing_on.cache_clear()
