"""Groups of attention: exact weights of what is on display, and which pairs are not computed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from qkv.io.families import preset
from qkv.look.view.attention import MOST_WEIGHTS, attention_groups, by_group, group_of, layer_weights
from qkv.look.view.axis import Axis
from qkv.nn.attention import tap
from qkv.nn.attention.attend import attend
from qkv.nn.models.build import build
from qkv.nn.patterns.basic import causal, window


def recorded(count: int, length: int = 6, heads: int = 4, **options: Any) -> list[Any]:
    x = torch.randn(1, length, heads, 8)
    with tap.record_attention() as requests:
        for i in range(count):
            attend(x + i, x, x, name=f"decoder.blocks.{i}.attention", **options)
    return requests


def axis(length: int, shown: tuple[int, ...] | None = None) -> Axis:
    kept = tuple(range(length)) if shown is None else shown
    return Axis("text", tuple(f"t{i}" for i in kept), kept, length)


def test_groups_by_name() -> None:
    assert [
        group_of(name) for name in ("decoder.blocks.3.cross", "encoder.blocks.0.attention", "decoder.cross", "")
    ] == [*("cross", "encoder", "cross", "attention")]


def test_weights_and_excluded_pairs_of_what_is_on_display() -> None:
    requests = recorded(2, pattern=causal() & window(3))
    shown = axis(6, (2, 3, 4))
    (group,) = attention_groups(requests, {"decoder": (shown, shown)}, heads=[3, 1])
    assert group.total == 2 and group.layers[1].heads == (3, 1)
    for layer, request in zip(group.layers, requests, strict=True):
        exact = tap.weights(request)[0][[3, 1], 2:5, 2:5]
        torch.testing.assert_close(layer.weights, exact)
        assert layer.computed is not None and torch.equal(layer.computed, exact > 0)
    assert group.head(0, 1).shape == (3, 3)
    with pytest.raises(ValueError, match="layer 0 of decoder shows the heads 3, 1, not 2"):
        group.head(0, 2)


def test_a_bias_of_minus_infinity_excludes_pairs_too() -> None:
    bias = torch.zeros(1, 1, 6, 6)
    bias[..., 2] = float("-inf")
    layer = layer_weights(recorded(1, bias=bias), 0, range(6), range(6))
    assert layer.computed is not None and not layer.computed[:, :, 2].any() and layer.computed[:, :, 3].all()


def test_layers_are_left_out_where_a_page_has_no_room() -> None:
    heads, length = 4, 64
    most = MOST_WEIGHTS // (heads * length * length)
    requests = recorded(1, length, heads) * (most + 40)
    (group,) = attention_groups(requests, {"decoder": (axis(length), axis(length))})
    indices = [layer.index for layer in group.layers]
    assert len(indices) == most and indices[0] == 0 and indices[-1] == most + 39
    assert group.note == f"{most} of {most + 40} layers are drawn"


def test_global_tokens_of_a_longformer_are_rows_of_their_layer() -> None:
    spec = preset("longformer-base-4096", vocab_size=30, d_model=16, n_layers=1, n_heads=2, d_ff=16)
    model = build(spec, seed=0).eval()
    ids = torch.randint(5, 30, (1, 12))
    from qkv.core.layout import Layout

    layout = Layout.full(12).with_global(torch.arange(12)[None] == 0)
    with tap.record_attention() as requests, torch.no_grad():
        model.hidden(ids, layout=layout)
    assert len(requests) == 2
    (layers,) = by_group(requests).values()
    layer = layer_weights(layers[0], 0, range(12), range(12))
    torch.testing.assert_close(layer.weights.sum(-1), torch.ones(2, 12))
    other = tap.weights(requests[1])[0, :, 0]
    torch.testing.assert_close(layer.weights[:, 0], other)
