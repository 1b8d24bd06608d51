"""Bug 22 of those that others shipped: empty sequences."""

from __future__ import annotations

import pytest
from every import call, every_backend, every_family, leaves
from small import (
    gradients,
    ids,
    model,
    same,
)

from qkv.core.batch import IGNORE
from qkv.core.layout import Layout
from qkv.nn.attention.attend import attend


@every_backend
@pytest.mark.parametrize("lengths", [(0, 3), (3, 0), (0, 0)])
def test_bug_22_no_tokens_at_all(backend: str, lengths: tuple[int, int]) -> None:
    """No query gives no row, no key gives rows of 0, and gradients exist either way."""
    q, k, v = leaves(2, *lengths)
    out = attend(q, k, v, backend=backend)
    assert out.shape == (2, lengths[0], 4, 8)
    assert bool((out == 0).all())
    out.sum().backward()
    assert all(x.grad is None or bool((x.grad == 0).all()) for x in (q, k, v))
    assert attend(*(x[:0] for x in leaves()), backend=backend).shape == (0, 5, 4, 8)


@every_family
@every_backend
def test_bug_22_sequences_of_no_length(family: str, backend: str) -> None:
    """An empty row or an empty document between others: the rest is as ever, losses and gradients are finite."""
    built, tokens = model(family, backend=backend), ids(3, 6)
    for layout in (
        Layout.from_lengths([4, 0, 6]),
        Layout.from_lengths([4, 0, 6], side="left"),
        Layout.packed([[4, 0, 2], [], [0, 6]]),
    ):
        logits = call(built, tokens, layout)
        same(logits[0, layout.valid[0]][:4], call(built, tokens[:1][:, layout.valid[0]][:, :4])[0])
        labels = ids(3, 6, seed=1).masked_fill(~layout.valid, IGNORE)
        call(built, tokens, layout, labels=labels).loss.backward()
        assert all(bool(g.isfinite().all()) for g in gradients(built).values())
