"""Bug 9 of those that others shipped: label shift."""

from __future__ import annotations

import pytest
from every import call, every_family
from letters import Letters
from small import (
    ids,
    model,
)
from torch.nn import functional as F

from qkv.core.batch import IGNORE
from qkv.data.batching.settings import Batching
from qkv.data.loader.stream import stream
from qkv.data.synthetic.copy_reverse_sort import Reverse


@every_family
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_bug_09_labels_are_aligned_and_shifted_by_nobody(family: str, smoothing: float) -> None:
    """The model's loss is that of label t under the logits at t; the data shift a text once."""
    built, tokens, labels = model(family), ids(2, 6), ids(2, 6, seed=1)
    sums = call(built, tokens, labels=labels, label_smoothing=smoothing)
    logits = call(built, tokens).flatten(0, 1)
    wanted = F.cross_entropy(logits, labels.flatten(), reduction="sum", label_smoothing=smoothing)
    assert float(sums.loss) == pytest.approx(float(wanted), rel=1e-10)
    assert int(sums.n_labels) == labels.numel()


@pytest.mark.parametrize("seq2seq", [True, False])
def test_bug_09_data_shift_labels_once(seq2seq: bool) -> None:
    """What the model reads after position t is the label at t."""
    batching = Batching(tokens=256, max_length=16, context=32, pool=16)
    with stream(Reverse(train=16), Letters(), batching, seq2seq=seq2seq, seed=1, epochs=1) as batches:
        for made in batches:
            read = made.inputs["target" if seq2seq else "ids"]
            assert made.labels is not None
            counted = made.labels[:, :-1] != IGNORE
            assert bool(
                (made.labels[:, :-1][counted] == read[:, 1:][counted])
                .logical_or(made.labels[:, :-1][counted] == 2)
                .all()
            )
            assert int((made.labels != IGNORE).sum()) == made.counts["loss"]
