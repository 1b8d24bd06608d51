"""Alignment by position, and in a window of the source."""

from __future__ import annotations

import pytest
import torch
from recurrent_models import built, gru, ids

from qkv.look import attention_maps
from qkv.nn.models.recurrent.attention import Luong


@pytest.mark.parametrize("feeding", [True, False])
@pytest.mark.parametrize("longest", [5, 20])
def test_luongs_score_by_location(longest: int, feeding: bool) -> None:
    """Equation 9: a = softmax(W_a h), with the rows of W_a for the places that there are; the rest is never seen."""
    m = built(context={"kind": "luong", "feeding": feeding, "alignment": "location", "longest": longest})
    source, target = ids(8), ids(6, 1)
    (found,) = attention_maps.attention(m, source, target, choose=attention_maps.cross)
    torch.testing.assert_close(m(source.expand(3, -1), target.expand(3, -1)), m(source, target).expand(3, -1, -1))
    with torch.no_grad():
        memory, d = m.read(source), m.decoder
        h_bar, weights = memory.states[0], dict(d.layers.rnn.named_parameters())
        h, fed = d.begin(memory)["h"][0, 0], torch.zeros(6, dtype=torch.float64)
        logits, alignment = [], []
        for token in target[0]:
            y = m.embedding.weight[token]
            h = gru(torch.cat([y, fed]) if feeding else y, h, weights)
            a = torch.zeros(8, dtype=torch.float64)
            a[: min(longest, 8)] = (d.align.weight @ h)[:8].softmax(0)
            fed = torch.tanh(d.combine.weight @ torch.cat([a @ h_bar, h]))
            logits.append(m.head(fed))
            alignment.append(a)
        torch.testing.assert_close(m(source, target)[0], torch.stack(logits))
    torch.testing.assert_close(found.weights[0, 0], torch.stack(alignment).float())


def test_a_monotonic_window_stays_at_the_end_of_the_source() -> None:
    """If a target is longer than its source, a monotonic window stays at the source's last token."""
    m = built(context=Luong(alignment="monotonic", reach=1, score="additive").to_dict())
    (found,) = attention_maps.attention(m, ids(3), ids(9), choose=attention_maps.cross)
    assert torch.allclose(found.weights.sum(-1), torch.ones(1, 1, 9)) and bool((found.weights[0, 0, 5, :1] == 0).all())
