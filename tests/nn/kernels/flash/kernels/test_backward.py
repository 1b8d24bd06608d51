"""The backward kernel drops the weights that the forward kernel dropped."""

from __future__ import annotations

import flash_worker
import pytest
import torch
from flash_remote import LIMITS, Remote, needs_triton


@pytest.mark.slow
@needs_triton
def test_dropout_drops_the_same_weights_backward(there: Remote) -> None:
    *errors, kept = there(flash_worker.dropout_agreement, 0.3)
    assert max(errors) < LIMITS[torch.float32], f"{errors}"
    assert kept == pytest.approx(0.7, abs=0.02)
