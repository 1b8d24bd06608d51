"""Looking at attention afterwards: what is recorded, and that the weights are those that were used."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch

from qkv import build, preset
from qkv.core.layout import Layout
from qkv.nn.attention import tap
from qkv.nn.attention.attend import attend
from qkv.nn.attention.weighting import ReLU, Sigmoid, Softmax, Sparsemax, SquaredReLU, Weighting
from qkv.nn.kernels import reference
from qkv.nn.kernels.request import Request
from qkv.nn.models import stack
from qkv.nn.patterns.basic import causal
from qkv.nn.positions.base import Widths
from qkv.nn.positions.bias import ALiBi

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"pattern": causal()},
    "left": {"pattern": causal(), "layout": Layout.from_lengths([3, 6], side="left")},
    "packed": {"pattern": causal(), "layout": Layout.packed([[2, 4], [6]])},
    "alibi": {"bias": ALiBi().module(Widths(32, 4, 8, None)).bias(), "pattern": causal()},
    "dense": {"bias": torch.randn(2, 1, 6, 6)},
    "capped": {"softcap": 1.0, "scale": 2.0},
    "dropout": {"dropout": 0.5},
}


@pytest.mark.parametrize("backend", ["auto", "tiled"])
@pytest.mark.parametrize("case", CASES)
def test_weights_are_the_references_for_any_heads_and_rows(case: str, backend: str) -> None:
    q, k, v = torch.randn(2, 6, 4, 8), torch.randn(2, 6, 2, 8), torch.randn(2, 6, 2, 5)
    with tap.record_attention() as requests:
        out = attend(q, k, v, backend=backend, name="layer", **CASES[case])
    [request] = requests
    assert request.name == "layer"
    whole = tap.weights(request)
    valid = request.layout.valid.expand(2, 6)[:, None, :, None]
    torch.testing.assert_close(whole, reference.weights(request, request.mask()).masked_fill(~valid, 0.0))
    sums = whole.sum(-1)
    torch.testing.assert_close(sums, valid[..., 0].float().expand_as(sums))
    if case != "dropout":
        by_hand = torch.einsum("bhts,bshe->bthe", whole, request.v.repeat_interleave(2, 2))
        torch.testing.assert_close(by_hand, out, atol=1e-5, rtol=1e-5)
    heads, rows = [3, 1], [5, 0, 2]
    torch.testing.assert_close(tap.weights(request, heads, rows), whole[:, heads][:, :, rows])


@pytest.mark.parametrize("weighting", [ReLU(), SquaredReLU(), Sigmoid(), Sparsemax(), Softmax()], ids=lambda w: w.kind)
@pytest.mark.parametrize("padded", ["queries", "keys", "both"])
def test_weights_of_padded_queries_or_keys_are_those_that_gave_the_output(weighting: Weighting, padded: str) -> None:
    q, k, v = torch.randn(2, 4, 2, 8), torch.randn(2, 7, 2, 8), torch.randn(2, 7, 2, 8)
    layout = Layout.from_lengths([2, 4]) if padded != "keys" else Layout.full(4)
    kv_layout = Layout.from_lengths([7, 3]) if padded != "queries" else Layout.full(7)
    with tap.record_attention() as requests:
        out = attend(q, k, v, layout=layout, kv_layout=kv_layout, weighting=weighting)
    by_hand = torch.einsum("bhts,bshe->bthe", tap.weights(requests[0]), requests[0].v)
    torch.testing.assert_close(by_hand, out)


def test_records_nest_and_stop_with_their_block() -> None:
    q = torch.randn(1, 3, 1, 4)
    with tap.record_attention() as outer:
        attend(q, q, q, name="a")
        with tap.record_attention() as inner:
            attend(q, q, q, name="b")
        attend(q, q, q, name="c")
    attend(q, q, q, name="d")
    assert [r.name for r in outer] == ["a", "b", "c"] and [r.name for r in inner] == ["b"]


def test_a_record_ends_with_an_error_too() -> None:
    q = torch.randn(1, 3, 1, 4)
    with pytest.raises(ZeroDivisionError), tap.record_attention() as requests:
        raise ZeroDivisionError
    attend(q, q, q)
    assert requests == []


def test_weights_leave_no_graph() -> None:
    q = torch.randn(1, 3, 1, 4, requires_grad=True)
    with tap.record_attention() as requests:
        attend(q, q, q)
    assert not tap.weights(requests[0]).requires_grad


def test_weights_of_an_edited_request_are_the_edited_ones() -> None:
    q, k, v = torch.randn(2, 5, 4, 8), torch.randn(2, 5, 2, 8), torch.randn(2, 5, 2, 8)

    def hide(scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, 1, :, 2] = torch.finfo(scores.dtype).min
        return scores

    def edits(request: Request) -> tap.Edits:
        return tap.Edits(hide, lambda weights: weights * torch.tensor([1.0, 1.0, 0.5, 0.0])[:, None, None])

    with tap.record_attention() as plain:
        attend(q, k, v, pattern=causal())
    with tap.intercept(edits), tap.record_attention() as edited:
        out = attend(q, k, v, pattern=causal())
    expected = hide(tap.scores(plain[0])).softmax(-1)
    expected[:, 2:] *= torch.tensor([0.5, 0.0])[:, None, None]
    weights = tap.weights(edited[0])
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close((weights @ v.transpose(1, 2).repeat_interleave(2, 1)).transpose(1, 2), out)
    assert torch.equal(tap.weights(edited[0], [1, 3], [4, 2]), weights[:, [1, 3]][:, :, [4, 2]])
    assert torch.equal(tap.scores(edited[0], [1], [4])[:, :, :, 3], tap.scores(plain[0], [1], [4])[:, :, :, 3])
    assert not weights[:, 1, :, 2].any() and weights[:, 0, 2:, 2].all()


@pytest.mark.slow
def test_recording_runs_layer_by_layer_and_costs_no_more_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of docs/look.md, while no weights are read."""
    spec = preset("gpt2", vocab_size=512, d_model=768, n_layers=4, n_heads=12, max_positions=256)
    model, ids = build(spec, seed=0).eval(), torch.randint(512, (1, 256))

    def seconds(block: Callable[[], AbstractContextManager[object]]) -> float:
        start = time.perf_counter()
        with torch.inference_mode(), block():
            model(ids)
        return time.perf_counter() - start

    @contextmanager
    def by_layers() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(stack, "fused_encoding", lambda *_: None)
            yield

    ways = (nullcontext, by_layers, tap.record_attention)
    for way in ways:
        seconds(way)
    whole, layers, recorded = (min(t) for t in zip(*([seconds(way) for way in ways] for _ in range(30)), strict=True))
    said = f"{1000 * whole:.2f} ms, {1000 * layers:.2f} ms by layers, {1000 * recorded:.2f} ms recorded"
    assert recorded < 1.05 * layers and recorded < 1.15 * whole, said
