"""Bug 20 of those that others shipped: data order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from letters import Letters
from torch import Tensor

from qkv.core.batch import Batch
from qkv.data.batching.settings import Batching
from qkv.data.loader.stream import stream
from qkv.data.synthetic.copy_reverse_sort import Reverse


@pytest.mark.parametrize("seq2seq", [True, False])
def test_bug_20_data_resume_with_the_next_batch(seq2seq: bool) -> None:
    """A stream opened at any batch's position continues with the batch after it, through ends of epochs, which differ."""
    batching = Batching(tokens=64, max_length=16, context=32, pool=7)

    def opened(position: dict[str, Any] | None = None) -> Any:
        return stream(Reverse(train=20), Letters(), batching, seq2seq=seq2seq, seed=3, epochs=3, position=position)

    def content(made: Batch) -> list[Any]:
        assert made.labels is not None
        return [made.labels.tolist(), *(v.tolist() for v in made.inputs.values() if isinstance(v, Tensor))]

    whole = list(opened())
    for at, made in enumerate(whole):
        position = json.loads(json.dumps(made.position))
        assert [content(b) for b in opened(position)] == [content(b) for b in whole[at + 1 :]]
    epochs = [[content(b) for b in whole if b.position["epoch"] == epoch] for epoch in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
