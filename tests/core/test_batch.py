"""A batch moves as one, and leaves what is no tensor alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from qkv.core.batch import Batch
from qkv.core.layout import Layout


def test_to_moves_every_tensor_and_layout() -> None:
    ids, labels = torch.arange(4)[None], torch.ones(1, 4, dtype=torch.long)
    batch = Batch({"ids": ids, "layout": Layout.full(4), "note": "x"}, labels, {"loss": 4}, 4, 4, {"line": 7})
    moved = batch.to("meta")
    assert moved.labels is not None and moved.labels.device.type == "meta"
    assert moved.inputs["ids"].device.type == moved.inputs["layout"].device.type == "meta"
    assert moved.inputs["layout"].start == 0 and moved.inputs["note"] == "x"
    assert (moved.counts, moved.position, moved.tokens) == ({"loss": 4}, {"line": 7}, 4)
    assert ids.device.type == "cpu" and Batch({"ids": ids}).to("meta").labels is None


def test_a_gpu_gets_its_tensors_from_page_locked_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU is needed to see that each tensor is pinned once, and then sent without waiting."""
    sent: list[tuple[int, str, bool]] = []
    pinned: list[int] = []

    def pin(tensor: Tensor) -> Tensor:
        pinned.append(tensor.numel())
        return tensor

    def to(tensor: Tensor, device: torch.device, non_blocking: bool = False) -> Tensor:
        sent.append((tensor.numel(), device.type, non_blocking))
        return tensor

    batch = Batch({"ids": torch.arange(6)[None], "layout": Layout.full(5)}, torch.zeros(1, 4))
    monkeypatch.setattr(Tensor, "pin_memory", pin)
    monkeypatch.setattr(Tensor, "to", to)
    batch.to("cuda")
    assert sorted(pinned) == [4, 5, 6] and sorted(sent) == [(n, "cuda", True) for n in (4, 5, 6)]
    pinned.clear()
    batch.to("cpu")
    assert not pinned


def test_a_term_without_its_own_count_counts_the_labels() -> None:
    counts = Batch({}, counts={"loss": 4, "boxes": 2}).counts
    assert (counts["focal"], counts["boxes"], dict(counts)) == (4, 2, {"loss": 4, "boxes": 2})
    with pytest.raises(ValueError, match="no labels that a term 'focal' could count; it counts: boxes"):
        Batch({}, counts={"boxes": 2}).counts["focal"]
