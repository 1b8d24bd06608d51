"""Bug 13 of those that others shipped: packed documents."""

from __future__ import annotations

import torch
from every import every_backend, every_family
from letters import Letters
from small import (
    VOCAB,
    model,
    packed,
)

from qkv.core.batch import IGNORE
from qkv.data.batching.packing import pack
from qkv.data.batching.settings import Batching
from qkv.data.loader.stream import stream
from qkv.data.synthetic.copy_reverse_sort import Reverse
from qkv.nn.patterns.basic import full


@every_family
@every_backend
def test_bug_13_packed_documents_do_not_see_one_another(family: str, backend: str) -> None:
    """One document's gradient with respect to another's embeddings is exactly zero, in every backend and family."""
    built, layout, tokens = model(family, full(), backend=backend), packed([[4, 3, 2]]), torch.arange(9)[None] % VOCAB
    source = {"ids": torch.arange(9, 15)[None], "layout": packed([[2, 1, 3]])}
    inputs = (
        {**source, "target": tokens, "target_layout": layout}
        if family == "encoder-decoder"
        else {"ids": tokens, "layout": layout}
    )
    built.hidden(**inputs)[0, 4:7].square().sum().backward()
    stack = built.encoder if family == "encoder" else built.decoder
    assert stack is not None
    touched = stack.embedding.weight.grad.abs().sum(1).nonzero().flatten().tolist()
    assert touched == [4, 5, 6, *([11] if family == "encoder-decoder" else [])]


def test_bug_13_packed_rows_isolate_and_label_each_document() -> None:
    """The data's packed rows carry segments, and no label crosses from one document into the next."""
    assert sorted(i for row in pack([3, 5, 2, 4], 7) for i in row) == [0, 1, 2, 3]
    batching = Batching(tokens=96, context=48, pool=64, packing=True)
    with stream(Reverse(train=64), Letters(), batching, seq2seq=False, seed=1, epochs=1) as batches:
        several = 0
        for made in batches:
            layout, read = made.inputs["layout"], made.inputs["ids"]
            assert made.labels is not None
            same_document = (layout.positions[:, 1:, 0] > layout.positions[:, :-1, 0]) & layout.valid[:, 1:]
            inside = same_document & (made.labels[:, :-1] != IGNORE)
            assert torch.equal(made.labels[:, :-1][inside], read[:, 1:][inside])
            if layout.segments is not None:
                several += int((layout.segments.amax(1) > 0).sum())
                assert bool((layout.segments[:, 1:] == layout.segments[:, :-1])[same_document].all())
                assert not layout.one_segment
        assert several > 0
