"""Bytes counted as tensors come and go, and the same without their contents."""

from __future__ import annotations

import pytest
import torch
from gradient_kernels import compute_by_panels
from torch import Tensor

from qkv.nn.cost.memory_tracking import ASKS, Live, without_contents
from qkv.nn.kernels.products import onednn
from qkv.nn.layers.losses import linear_cross_entropy

KIB = 1024


def vector(kib: int) -> Tensor:
    return torch.empty(kib * KIB // 4)


def test_what_is_held_and_what_was_held_at_most() -> None:
    live = Live()
    with live:
        a = vector(4)
        view = a[10:]
        b = vector(2)
        assert live.now == 6 * KIB
        c = a + a
        assert (live.now, live.peak) == (10 * KIB, 10 * KIB)
        del b, c
        assert (live.now, live.peak) == (4 * KIB, 10 * KIB)
        del a
        assert live.now == 4 * KIB, "a view keeps the storage that it looks into"
        del view
        assert live.now == 0


def work(width: int, live: Live) -> Tensor:
    """A layer with autograd, whose result is held by the caller."""
    x, w = torch.ones(32, width), torch.ones(width, width, requires_grad=True)
    live.hold(w)
    return (x @ w).relu().square().sum()


def test_without_contents_the_count_is_the_same() -> None:
    found = []
    for fake in (False, True):
        live = Live()
        with without_contents() if fake else torch.enable_grad(), live:
            loss = work(64, live)
            before = live.now
            loss.backward()
            del loss
            found.append((before, live.now, live.peak))
    assert found[0] == found[1]
    held, left, most = found[0]
    assert left == 0 and most > held > 64 * 64 * 4


def test_nothing_is_allocated() -> None:
    with without_contents(), Live() as live:
        big = torch.empty(1 << 40)
        assert live.now == 4 << 40
        del big


def test_chunks_of_logits_count_though_an_operator_hides_them() -> None:
    n, width, vocab = 64, 8, 4096
    with without_contents(), Live() as live:
        hidden = torch.empty(1, n, width, requires_grad=True)
        weight = torch.empty(vocab, width)
        loss = linear_cross_entropy(hidden, weight, None, torch.zeros(1, n, dtype=torch.int64)).loss
        del loss
    assert live.peak > 4 * n * vocab, "the logits of all rows are there for a moment"


@pytest.fixture(params=[False, True], ids=["by copies", "by panels"])
def panels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether gradients of weights are by the C++ kernels."""
    return compute_by_panels(request.param, monkeypatch)


def test_what_a_gradient_of_a_weight_takes_counts_where_it_multiplies(
    panels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onednn, "LEAST", 64 * 32 * 128)

    def beside(first: Tensor, second: Tensor) -> int:
        """Bytes counted in a product beyond its operands and its output."""
        with Live(copies=True) as live:
            kept = torch.mm(first, second)
        return live.peak - kept.nbytes

    for faster in (True, False):
        monkeypatch.setattr(onednn, "is_faster", lambda faster=faster: faster)
        with without_contents():
            d, x, weight = torch.empty(64, 128), torch.empty(64, 32), torch.empty(128, 32)
            copied = (64 + 1) * 32 * 4 if panels else d.nbytes + 128 * 32 * 4
            assert beside(d.T, x) == (copied if faster else 0)
            assert beside(d, weight) == beside(x, weight.T) == 0, "the second operand is read as it lies"
            assert beside(d[:, 1:].T, x) == 0, "MKL computes small products"
            assert beside(d.bfloat16().T, x.bfloat16()) == 0, "only products in fp32 are by these calls"


def test_the_gradient_of_a_vocabulary_takes_as_much(panels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    n, width, vocab = 64, 32, 3 * onednn.AT_ONCE

    def loss(copies: bool, trained: bool) -> int:
        with without_contents(), Live(copies=copies) as live:
            hidden = torch.empty(1, n, width, requires_grad=True)
            weight = torch.empty(vocab, width, requires_grad=trained)
            linear_cross_entropy(hidden, weight, None, torch.zeros(1, n, dtype=torch.int64))
        return live.peak

    for faster in (True, False):
        monkeypatch.setattr(onednn, "is_faster", lambda faster=faster: faster)
        beside = loss(copies=True, trained=True) - loss(copies=False, trained=True)
        allocated = (n + 1) * width * 4 if panels else 4 * onednn.AT_ONCE * (n + width)
        assert beside == (allocated if faster else 0)
        assert loss(copies=True, trained=False) == loss(copies=False, trained=False), "no product of a frozen weight"


@pytest.mark.parametrize("dtype, copies", [(torch.float32, 0), (torch.bfloat16, 1)])
def test_the_gradient_of_a_frozen_output_matrix_does_not_count(dtype: torch.dtype, copies: int) -> None:
    """Its size in fp32, and with narrower logits the narrow product that is added to it."""
    n, width, vocab = 16, 32, 4096

    def loss(trained: bool) -> int:
        with without_contents(), Live() as live:
            hidden = torch.empty(1, n, width, dtype=dtype, requires_grad=True)
            weight = torch.empty(vocab, width, requires_grad=trained)
            linear_cross_entropy(hidden, weight, None, torch.zeros(1, n, dtype=torch.int64)).loss.backward()
        return live.peak

    assert loss(trained=True) - loss(trained=False) >= vocab * width * (4 + 2 * copies)


def test_a_look_at_values_is_told() -> None:
    with pytest.raises(ASKS), without_contents(), Live():
        bool(torch.empty(()) > 0)
