"""Deep recurrent translators: against loops over the equations, their sizes against the papers, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from recurrent_models import built, ids, lstm
from torch import Tensor

import qkv
from qkv.nn.layers.rnn import Recurrence
from qkv.nn.models.recurrent.model import Recurrent

DEEP: dict[str, Any] = {"cell": "lstm", "encoder_layers": 4, "decoder_layers": 4, "d_h": 6, "d_s": 6}
RESIDUAL = {**DEEP, "connections": "residual", "context": "bottom-attention"}
FORWARD = {
    **DEEP,
    "connections": {"kind": "fast-forward", "d_memory": 7},
    "context": {"kind": "bottom-attention", "everywhere": False},
}


def run(layer: Recurrence, x: list[Tensor], suffix: str = "") -> list[Tensor]:
    """The states of an LSTM layer over a list of inputs; the backward direction of two with "_reverse"."""
    w = {name.removesuffix(suffix): p for name, p in layer.rnn.named_parameters() if name.endswith(f"l0{suffix}")}
    h = c = torch.zeros(layer.d_out, dtype=torch.float64)
    states = []
    for vector in x[::-1] if suffix else x:
        h, c = lstm(vector, h, c, w)
        states.append(h)
    return states[::-1] if suffix else states


def gates(layer: Recurrence, x: list[Tensor]) -> list[Tensor]:
    return [layer.rnn.weight_ih_l0 @ one + layer.rnn.bias_ih_l0 for one in x]  # type: ignore[operator]


def joined(f: list[Tensor], h: list[Tensor]) -> list[Tensor]:
    return [torch.cat([a[: len(a) // 2], b]) for a, b in zip(f, h, strict=True)]


def encoded(model: Any, source: Tensor) -> list[Tensor]:
    """The encoder's output by the equations."""
    words = list(model.source_embedding.weight[source[0]])
    if model.spec.connections.kind == "residual":
        (column,) = model.encoder.columns
        both = [run(column.layers[0], words), run(column.layers[0], words, "_reverse")]
        x = [torch.cat(pair) for pair in zip(*both, strict=True)]
        for k, layer in enumerate(column.layers[1:], 2):
            h = run(layer, x)
            x = [a + b for a, b in zip(h, x, strict=True)] if k >= 3 else h
        return x
    parts = []
    for n, column in enumerate(model.encoder.columns):
        x, f, h = words, words, words
        for k, layer in enumerate(column.layers):
            backward = (k + n) % 2 == 1
            h = run(layer, x[::-1])[::-1] if backward else run(layer, x)
            f = gates(layer, x)
            x = joined(f, h)
        parts += [f, h]
    return [model.encoder.project.weight @ torch.cat(vectors) for vectors in zip(*parts, strict=True)]


def decoded(model: Any, memory: list[Tensor], target: Tensor) -> Tensor:
    """The head's input by the equations, token by token."""
    decoder, spec = model.decoder, model.spec
    score, bottom = decoder.align.score, decoder.layers
    w = dict(bottom.rnn.named_parameters())
    h = c = torch.zeros(6, dtype=torch.float64)
    states = torch.stack(memory)[None, :, None]
    contexts, firsts, inputs = [], [], []
    for word in model.embedding.weight[target[0]]:
        keys, query = score.keys(states), score.queries(h[None, None, None])
        scores = score.comparison()(query.transpose(1, 2), keys.transpose(1, 2))[0, 0, 0]
        contexts.append(scores.softmax(0) @ states[0, :, 0])
        inputs.append(torch.cat([word, contexts[-1]]))
        h, c = lstm(inputs[-1], h, c, w)
        firsts.append(h)
    forward = spec.connections.kind == "fast-forward"
    x = joined(gates(bottom, inputs), firsts) if forward else firsts
    for k, layer in enumerate(decoder.upper.layers, 2):
        read = [torch.cat(pair) for pair in zip(x, contexts, strict=True)] if spec.context.everywhere else x
        states_k = run(layer, read)
        if forward:
            x = states_k if k == 4 else joined(gates(layer, read), states_k)
        else:
            x = [a + b for a, b in zip(states_k, x, strict=True)] if k >= 3 else states_k
    return torch.stack(x)


@pytest.mark.parametrize("sizes", [RESIDUAL, FORWARD], ids=["residual", "fast-forward"])
def test_outputs_match_the_equations(sizes: dict[str, Any]) -> None:
    model, source, target = built(**sizes), ids(5), ids(4, seed=1)
    expected = encoded(model, source)
    torch.testing.assert_close(model.read(source).states[0], torch.stack(expected))
    torch.testing.assert_close(model.hidden(source, target)[0], decoded(model, expected, target))
    assert model.spec.n_parameters == sum(p.numel() for p in model.parameters())


def test_gnmt_has_the_published_size() -> None:
    """Shazeer et al. (2017, tables 2 to 4) give GNMT 278 M parameters and 214 M multiply-adds for each token, the head
    included."""
    spec = qkv.preset("gnmt")
    assert spec.n_parameters == 280_928_512 == pytest.approx(278e6, rel=0.011)
    assert spec.cost(1, 1).flops / 2 == pytest.approx(214e6, rel=0.006)


def test_deep_att_has_the_published_widths() -> None:
    """Zhou et al. (2016, §4): words 256 and states 512 wide, 9 layers of an encoder with two columns, 7 of the decoder,
    and a memory of 1280, a quarter of [f; h] of both columns."""
    spec = qkv.preset("deep-att")
    assert spec.widths.d_m == 1280 == 2 * (4 * 512 + 512) // 4
    assert (spec.d_e, spec.d_h, spec.encoder_layers, spec.decoder_layers) == (256, 512, 9, 7)
    assert spec.n_parameters == 209_668_736


def test_depth_is_learned_with_connections() -> None:
    """Gradients of the bottom layer's weights in an encoder of 12 layers, against a stack without connections."""

    def norm(**more: Any) -> float:
        spec = {"vocab_size": 13, "d_e": 8, "d_h": 8, "d_s": 8, "cell": "lstm", "encoder_layers": 12, "directions": 1}
        model = qkv.build(Recurrent.from_dict({**spec, **more, "initialization": {"kind": "uniform", "bound": 0.08}}))
        model(ids(6), ids(5, seed=1)).square().sum().backward()
        (first,) = [p for name, p in model.encoder.named_parameters() if name.endswith("weight_ih_l0")][:1]
        return float(first.grad.norm())

    plain = norm()
    assert norm(connections="residual", context="bottom-attention") > 1e3 * plain
    assert norm(connections="fast-forward", context="bottom-attention") > 1e3 * plain


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(ValueError, match="do not go with context=luong"):
        built(**{**RESIDUAL, "context": "luong"})
    with pytest.raises(ValueError, match="do not go with reverse"):
        built(**{**RESIDUAL, "reverse": True, "directions": 1})
