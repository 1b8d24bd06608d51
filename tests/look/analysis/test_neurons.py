"""The texts that excite a neuron: the largest values over all batches, without padding."""

from __future__ import annotations

import pytest
import torch

from qkv.core.layout import Layout
from qkv.io.families import preset
from qkv.look.analysis.neurons import top_texts
from qkv.nn.activations import record
from qkv.nn.models.build import build

LAYER = "decoder.layers.1.feedforward.neurons"


def test_the_largest_values_of_all_batches():
    model = build(preset("gpt2", vocab_size=11, d_model=8, n_layers=2, n_heads=2, max_positions=16), seed=0)
    ids = torch.randint(11, (6, 5), generator=torch.Generator().manual_seed(0))
    lengths = [5, 3, 4, 5, 1, 2]
    layout = Layout.from_lengths(lengths)
    with torch.no_grad(), record(model.eval(), LAYER) as at:
        model(ids, layout=layout)
    values = at[LAYER][..., 7]
    expected = sorted(
        ((float(values[i, :n].max()), i, int(values[i, :n].argmax())) for i, n in enumerate(lengths)), reverse=True
    )
    parts = [(ids[:2], Layout.from_lengths(lengths[:2], width=5)), (ids[2:], Layout.from_lengths(lengths[2:], width=5))]
    found = top_texts(model, parts, 7, LAYER, k=4)
    assert [(e.text, e.position) for e in found] == [(i, p) for _, i, p in expected[:4]]
    assert [len(e.values) for e in found] == [lengths[i] for _, i, _ in expected[:4]]  # without padding
    assert all(e.values[e.position] == e.value == max(e.values) for e in found)
    assert [e.value for e in found] == pytest.approx([v for v, _, _ in expected[:4]], rel=1e-4)


def test_a_neuron_that_is_not_there():
    model = build(preset("gpt2", vocab_size=11, d_model=8, n_layers=2, n_heads=2, max_positions=16), seed=0)
    with pytest.raises(ValueError, match="has 32 neurons, from 0 to 31; there is no 32"):
        top_texts(model, [(torch.tensor([[1, 2]]), None)], 32, LAYER)
