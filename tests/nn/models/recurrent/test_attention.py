"""Decoders with attention to the source, against their papers' equations, written out step by step."""

from __future__ import annotations

import math

import pytest
import torch
from recurrent_models import built, gru, ids, lstm, maxout

import qkv
from qkv.look import attention_maps


def test_outputs_match_bahdanaus_equations() -> None:
    """Appendix A of the paper, one token after another."""
    m = built(context={"kind": "bahdanau", "score": {"kind": "additive", "d_a": 3}, "d_o": 7})
    source, target = ids(6), ids(5, 1)
    with torch.no_grad():
        memory = m.read(source)
        h, d, score = memory.states[0], m.decoder, m.decoder.align.score
        weights = dict(d.layers.rnn.named_parameters())
        s = torch.tanh(d.bridge.linear(h[0, 4:]))  # ←h_1
        logits, alignment = [], []
        for token in target[0]:
            y = m.embedding.weight[token]
            e = torch.stack([score.v[0] @ torch.tanh(score.query[0] @ s + score.key[0] @ h_j) for h_j in h])
            a = e.softmax(0)
            c = a @ h
            s = gru(torch.cat([y, c]), s, weights)
            logits.append(m.head(maxout(d.readout.linear, torch.cat([s, y, c]))))
            alignment.append(a)
        torch.testing.assert_close(m(source, target)[0], torch.stack(logits))
    (found,) = attention_maps.attention(m, source, target, choose=attention_maps.cross)
    torch.testing.assert_close(found.weights[0, 0], torch.stack(alignment).float())


@pytest.mark.parametrize("feeding", [True, False])
@pytest.mark.parametrize("alignment", ["global", "monotonic", "predictive"])
def test_outputs_match_luongs_equations(alignment: str, feeding: bool) -> None:
    """Sections 3.1 to 3.3: h̃ = tanh(W_c [c; h]), windows of reach D, and p_t = S σ(v tanh(W h)) with a Gaussian around."""
    reach = {} if alignment == "global" else {"reach": 2}
    m = built(cell="lstm", context={"kind": "luong", "feeding": feeding, "alignment": alignment, **reach})
    source, target = ids(8), ids(6, 1)
    with torch.no_grad():
        memory, d = m.read(source), m.decoder
        h_bar, weights = memory.states[0], dict(d.layers.rnn.named_parameters())
        held = d.begin(memory)
        h, c_, fed = held["h"][0, 0], held["c"][0, 0], torch.zeros(6, dtype=torch.float64)
        logits = []
        for t, token in enumerate(target[0]):
            y = m.embedding.weight[token]
            h, c_ = lstm(torch.cat([y, fed]) if feeding else y, h, c_, weights)
            e = torch.stack([h @ d.align.score.weight[0] @ x for x in h_bar])
            place = torch.arange(8.0, dtype=torch.float64)
            if alignment == "predictive":
                first, _, last = d.align.predict
                p = 8 * torch.sigmoid(last.weight @ torch.tanh(first.weight @ h))
            else:
                p = torch.tensor([float(t)], dtype=torch.float64)
            if alignment != "global":
                e = e.masked_fill((place - p).abs() > 2, -math.inf)
            a = e.softmax(0)
            if alignment == "predictive":
                a = a * torch.exp(-((place - p) ** 2) / (2 * (2 / 2) ** 2))
            fed = torch.tanh(d.combine.weight @ torch.cat([a @ h_bar, h]))
            logits.append(m.head(fed))
        torch.testing.assert_close(m(source, target)[0], torch.stack(logits))


def test_attention_costs_what_the_formula_says() -> None:
    """T_x d_a d_h + T_y(d_a d_s + T_x(d_a + d_h)), and in each pair's mean what the gates read: 3 d_s numbers."""
    spec = qkv.preset("rnnsearch", d_h=8, d_s=12, context={"kind": "bahdanau", "score": {"kind": "additive", "d_a": 5}})
    t_x, t_y, d_a, d_h, d_s = 7, 9, 5, 16, 12
    attention = spec.parts(t_y, t_x)["attention"].flops
    assert attention == 2 * (t_x * d_a * d_h + t_y * (d_a * d_s + t_x * (d_a + d_h + 3 * d_s)))
