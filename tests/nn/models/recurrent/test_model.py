"""Recurrent translators: sizes, costs, half precision and refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recurrent_models import SIZES, built, ids

import qkv
from qkv.io.families import PRESETS
from qkv.nn.models.base import ModelSpec
from qkv.nn.models.recurrent.model import Recurrent

NAMES = [name for name in PRESETS if isinstance(qkv.preset(name), Recurrent)]


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
