"""Where timestamps may stand, beside transformers' processor."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from qkv.runs.inference.transcribe.timestamps import TimestampRules

logits_process = pytest.importorskip("transformers.generation.logits_process")

FIRST, EOS, NEVER, SIZE = 30, 20, 29, 45


@pytest.mark.parametrize("latest", [None, 5])
def test_the_rules_are_transformers(latest: int | None) -> None:
    said: dict[str, Any] = {"eos_token_id": EOS, "bos_token_id": EOS, "no_timestamps_token_id": NEVER}
    theirs = logits_process.WhisperTimeStampLogitsProcessor(
        SimpleNamespace(**said, max_initial_timestamp_index=latest), begin_index=3
    )
    ours = TimestampRules(3, FIRST, EOS, NEVER, latest)
    torch.manual_seed(0)
    for length in (3, 4, 5, 6, 9):
        for loud in (1.0, 4.0):
            ids = torch.randint(0, SIZE, (40, length))
            ids[:20, 3:] = torch.randint(FIRST - 3, SIZE, (20, length - 3)).sort(1).values
            logits = loud * torch.randn(40, SIZE)
            before = logits.clone()
            assert torch.equal(ours(ids, logits), theirs(ids, logits)), length
            assert torch.equal(logits, before)
