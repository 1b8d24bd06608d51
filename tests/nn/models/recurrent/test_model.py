"""Recurrent translators against their papers' equations, written out step by step; sizes, costs and refusals."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import qkv
from qkv.io.families import PRESETS
from qkv.look import attention_maps
from qkv.nn.models.base import ModelSpec
from qkv.nn.models.recurrent.attention import Luong
from qkv.nn.models.recurrent.model import Recurrent

SIZES = {"vocab_size": 13, "d_e": 5, "d_h": 4, "d_s": 6}
NAMES = [name for name in PRESETS if isinstance(qkv.preset(name), Recurrent)]


def built(**changes: Any) -> Any:
    """A model whose every parameter shows."""
    model = qkv.build(Recurrent.from_dict({**SIZES, **changes}), dtype=torch.float64).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return model


def ids(n: int, seed: int = 0) -> Tensor:
    return torch.randint(13, (1, n), generator=torch.Generator().manual_seed(seed))


def gru(x: Tensor, h: Tensor, w: dict[str, Tensor]) -> Tensor:
    i = (w["weight_ih_l0"] @ x + w["bias_ih_l0"]).chunk(3)
    g = (w["weight_hh_l0"] @ h + w["bias_hh_l0"]).chunk(3)
    r, z = torch.sigmoid(i[0] + g[0]), torch.sigmoid(i[1] + g[1])
    return (1 - z) * torch.tanh(i[2] + r * g[2]) + z * h


def lstm(x: Tensor, h: Tensor, c: Tensor, w: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    i, f, g, o = (w["weight_ih_l0"] @ x + w["bias_ih_l0"] + w["weight_hh_l0"] @ h + w["bias_hh_l0"]).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def maxout(linear: Any, x: Tensor) -> Tensor:
    return linear(x).view(-1, 2).max(1).values


def test_bahdanaus_equations() -> None:
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
def test_luongs_equations(alignment: str, feeding: bool) -> None:
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


def test_chos_equations() -> None:
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


@pytest.mark.parametrize("name", NAMES)
def test_presets_are_counted_exactly(name: str) -> None:
    spec = qkv.preset(name)
    model = qkv.build(spec, device="meta")
    assert sum(p.numel() for p in model.parameters()) == spec.n_parameters
    assert ModelSpec.from_json(spec.to_json()) == spec


@given(
    st.sampled_from(["rnn", "gru", "lstm"]),
    st.sampled_from(["final-state", "fixed-context", "bahdanau", "luong"]),
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(1, 3),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_parameters_are_counted(cell: str, context: str, directions: int, deep: int, deeper: int, tied: bool) -> None:
    more = {
        "cell": cell,
        "context": context,
        "directions": directions,
        "encoder_layers": deep,
        "decoder_layers": deeper,
    }
    head = {"tied": tied and context in ("fixed-context", "bahdanau"), "bias": True}
    spec = Recurrent.from_dict({**SIZES, **more, "head": head, "tie_embeddings": tied})
    model = qkv.build(spec, device="meta")
    assert sum(p.numel() for p in model.parameters()) == spec.n_parameters
    assert sum(part.parameters for part in spec.parts(3, 4).values()) == spec.n_parameters


def test_attention_costs_what_the_formula_says() -> None:
    """T_x d_a d_h + T_y(d_a d_s + T_x(d_a + d_h)), and in each pair's mean what the gates read: 3 d_s numbers."""
    spec = qkv.preset("rnnsearch", d_h=8, d_s=12, context={"kind": "bahdanau", "score": {"kind": "additive", "d_a": 5}})
    t_x, t_y, d_a, d_h, d_s = 7, 9, 5, 16, 12
    attention = spec.parts(t_y, t_x)["attention"].flops
    assert attention == 2 * (t_x * d_a * d_h + t_y * (d_a * d_s + t_x * (d_a + d_h + 3 * d_s)))


@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn"])
@pytest.mark.parametrize(
    "context", ["final-state", "fixed-context", "bahdanau", "luong", {"kind": "luong", "feeding": False}]
)
def test_half_precision_is_near(context: Any, cell: str) -> None:
    """Under autocast, states in fp32 if steps are taken one by one; padded rows too."""
    model = qkv.build(Recurrent.from_dict({**SIZES, "d_s": 4, "cell": cell, "context": context}), seed=1)
    source, target = ids(6).expand(2, -1), ids(5, 1).expand(2, -1)
    rows = {"layout": qkv.Layout.from_lengths([6, 4], 6), "target_layout": qkv.Layout.from_lengths([5, 2], 5)}
    losses = []
    for dtype in (None, torch.bfloat16):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype is not None):
            losses.append(model(source, target, **rows, labels=target).loss)
        losses[-1].backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        model.zero_grad()
    assert float(losses[1].detach()) == pytest.approx(float(losses[0].detach()), rel=0.02)


@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn"])
@pytest.mark.parametrize("context", ["final-state", "fixed-context", "bahdanau", "luong"])
def test_a_row_may_be_all_padding_in_a_chunk_of_the_prompt(context: str, cell: str) -> None:
    model = built(context=context, cell=cell)
    source, target = ids(5).expand(2, -1), ids(6, 1).expand(2, -1)
    layout = qkv.Layout.from_mask(torch.tensor([[0, 0, 0, 0, 1, 1], [1] * 6]))
    whole = model.step(target, model.start(source=source), layout, all_positions=True)
    cache = model.start(source=source)
    chunks = [
        model.step(target[:, i : i + 3], cache, qkv.Layout(layout.positions[:, i : i + 3]), all_positions=True)
        for i in (0, 3)
    ]
    torch.testing.assert_close(torch.cat(chunks, 1)[layout.valid], whole[layout.valid])


def test_a_fixed_vector_tells_no_tap() -> None:
    assert attention_maps.attention(built(context="fixed-context"), ids(4), ids(3), choose=attention_maps.cross) == []


def test_tied_tables_stay_tied() -> None:
    m = built(context="bahdanau", tie_embeddings=True, head={"tied": True, "bias": True})
    for model in (m, m.to(torch.float32)):
        assert model.source_embedding.weight is model.embedding.weight is model.head.weight
    m.load_state_dict({k: v.clone() for k, v in m.state_dict().items()}, assign=True)
    assert m.source_embedding.weight is m.embedding.weight is m.head.weight


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"context": {"kind": "bahdanau", "score": "dot"}}, "not 6 and 8; scores for different widths are general"),
        ({"reverse": True}, "reverse is for one direction"),
        ({"head": {"tied": True}, "context": "luong"}, "embeddings as wide as what it reads, 6, not 5; untie it"),
        (
            {"context": {"kind": "luong", "reach": 3}},
            "reach is the size of a window, and .* has none; take alignment monotonic or predictive",
        ),
        ({"context": {"kind": "luong", "longest": 3}}, "longest is for alignment location"),
        (
            {"context": {"kind": "luong", "alignment": "location", "score": "concat"}},
            "scores by position alone and takes no score",
        ),
        ({"context": {"kind": "luong", "alignment": "location", "reach": 3}}, "location attention has none"),
        ({"context": {"kind": "luong", "score": "exact-match"}}, "learned states are never equal"),
        ({"context": "bahdanu"}, "did you mean 'bahdanau'"),
        ({"cell": "gruu"}, "cell"),
        ({"tie_embeddings": True, "source_vocab_size": 5}, "shares one table"),
    ],
)
def test_what_does_not_go_together(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Recurrent.from_dict({**SIZES, **changes})


def test_mistakes_are_named() -> None:
    m = built()
    with pytest.raises(ValueError, match="source 1 has no tokens"):
        m(ids(3).expand(2, -1), ids(2).expand(2, -1), layout=qkv.Layout.from_lengths([3, 0], 3))
    with pytest.raises(ValueError, match="source 0 has no tokens"):
        m(ids(0), ids(2))
    with pytest.raises(ValueError, match="takes the source ids and the target"):
        m(ids(3))
    with pytest.raises(ValueError, match="so it has no quantized cache"):
        m.start(source=ids(3), cache="int8")
    with pytest.raises(ValueError, match="starts from source ids"):
        m.start(2)
    with pytest.raises(ValueError, match="no blocks to recompute"):
        m.recompute("blocks")
    with pytest.raises(ValueError, match="d_a is the width of an additive score"):
        qkv.preset("rnnsearch", context="fixed-context", d_a=3)


def test_a_windows_far_end() -> None:
    """If a target is longer than its source, a monotonic window stays at the source's last token."""
    m = built(context=Luong(alignment="monotonic", reach=1, score="additive").to_dict())
    (found,) = attention_maps.attention(m, ids(3), ids(9), choose=attention_maps.cross)
    assert torch.allclose(found.weights.sum(-1), torch.ones(1, 1, 9)) and bool((found.weights[0, 0, 5, :1] == 0).all())
