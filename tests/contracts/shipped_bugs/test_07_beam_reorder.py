"""Bug 7 of those that others shipped: beam reorder."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small import (
    ids,
    model,
    padded,
    same,
)

from qkv.core.layout import Layout
from qkv.nn.patterns.basic import causal, window
from qkv.nn.positions.absolute import Sinusoidal
from qkv.nn.positions.rotary import Rotary


@pytest.mark.parametrize("pattern", [causal(), causal() & window(3)], ids=["full", "ring"])
def test_bug_07_every_cache_is_reordered(pattern: Any) -> None:
    """Self-attention's full and ring caches and the cross caches all follow the beams, and so do rows' positions."""
    built = model("encoder-decoder", pattern, Sinusoidal())
    lengths, order = [3, 6, 4], torch.tensor([2, 2, 0, 1])
    source, tokens, layout = ids(3, 6, seed=1), ids(3, 6, seed=2), Layout.from_lengths(lengths, side="left")
    cache = built.start(source=source, source_layout=padded(lengths, "right", 6))
    with torch.no_grad():
        built.step(tokens, cache, layout)
    cache.reorder(order)
    more = ids(4, 5, seed=3)
    with torch.no_grad():
        found = torch.stack([built.step(more[:, t : t + 1], cache) for t in range(5)], 1)
    for beam, row in enumerate(order.tolist()):
        whole = torch.cat([tokens[row, layout.valid[row]], more[beam]])[None]
        wanted = built(source[row : row + 1, : lengths[row]], whole)
        same(found[beam], wanted[0, lengths[row] :], what=f"beam {beam}")
    assert cache.batch_size == 4


def test_bug_07_beams_may_leave_the_encoders_keys_where_they_are() -> None:
    """Beams of one sentence that change places need no new cross caches: the logits are as if they were reordered too."""
    built, tokens, new = model("encoder-decoder", position=Rotary()), ids(4, 5), ids(4, 1, seed=1)
    source, order = ids(2, 4, seed=2).repeat_interleave(2, 0), torch.tensor([1, 0, 3, 3])
    found = []
    for cross in (True, False):
        cache = built.start(source=source)
        with torch.no_grad():
            built.step(tokens, cache)
            cache.reorder(order, cross=cross)
            found.append(built.step(new, cache))
    assert torch.equal(*found)
    same(found[0], built(source, torch.cat([tokens[order], new], 1))[:, -1])
