"""CTC's objective is PyTorch's loss over the symbols of the texts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from qkv.core.batch import IGNORE, Batch
from qkv.nn.layers.losses import LossSums
from qkv.runs.tasks.speech_recognition.objective import CTCObjective


class Sums(nn.Module):
    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> object:
        lengths = (labels != IGNORE).sum(1)
        frames = torch.full((len(ids),), ids.shape[1])
        loss = nn.functional.ctc_loss(
            ids.log_softmax(-1).transpose(0, 1), labels.clamp(min=0), frames, lengths, 0, "sum"
        )
        return LossSums(loss, loss, lengths.sum())


def test_the_loss_is_the_sum_over_texts_for_each_symbol() -> None:
    labels = torch.tensor([[1, 2, 2], [3, IGNORE, IGNORE]])
    batch = Batch({"ids": torch.randn(2, 9, 4)}, labels, {"loss": 4})
    term = CTCObjective()(Sums(), batch)["loss"]
    each = [
        nn.functional.ctc_loss(x.log_softmax(-1)[:, None], row[row > 0][None], [9], [int((row > 0).sum())], 0, "sum")
        for x, row in zip(batch.inputs["ids"], labels, strict=True)
    ]
    torch.testing.assert_close(term.sum, sum(each))
    assert term.count == 4
    with pytest.raises(ValueError, match="needs batches with labels"):
        CTCObjective()(Sums(), Batch({"ids": torch.zeros(1, 2, 4)}, None))
