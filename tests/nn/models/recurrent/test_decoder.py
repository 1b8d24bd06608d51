"""Decoders that read a fixed vector, against their papers' equations."""

from __future__ import annotations

import torch
from recurrent_models import built, gru, ids, maxout

from qkv.look import attention_maps


def test_outputs_match_chos_equations() -> None:
    m = built(context={"kind": "fixed-context", "d_o": 7})
    source, target = ids(6), ids(5, 1)
    with torch.no_grad():
        memory, d = m.read(source), m.decoder
        h, weights = memory.states[0], dict(d.layers.rnn.named_parameters())
        c = torch.tanh(d.summary(torch.cat([h[-1, :4], h[0, 4:]])))
        s, logits = torch.tanh(d.bridge.linear(c)), []
        for token in target[0]:
            y = m.embedding.weight[token]
            s = gru(torch.cat([y, c]), s, weights)
            logits.append(m.head(maxout(d.readout.linear, torch.cat([s, y, c]))))
        torch.testing.assert_close(m(source, target)[0], torch.stack(logits))


def test_sutskevers_states_go_straight_over() -> None:
    """The source is read from its end, and no parameter stands between the encoder's states and the decoder's."""
    m = built(cell="lstm", directions=1, d_s=4, reverse=True, context="final-state")
    source, target = ids(6), ids(5, 1)
    with torch.no_grad():
        _, last = m.encoder.layers.rnn(m.source_embedding.weight[source.flip(1)])
        out, _ = m.decoder.layers.rnn(m.embedding.weight[target], last)
        torch.testing.assert_close(m(source, target), m.head(out))
    assert m.decoder.bridge is None


def test_a_fixed_vector_has_no_attention_to_record() -> None:
    assert attention_maps.attention(built(context="fixed-context"), ids(4), ids(3), choose=attention_maps.cross) == []
