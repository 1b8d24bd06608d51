"""The fused language-model loss against the plain one, and the plain one against its formula."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.core.batch import IGNORE
from qkv.core.graphs import registered
from qkv.nn.layers import losses as module
from qkv.nn.layers.losses import cross_entropy, linear_cross_entropy

V, M = 11, 6


def problem(dtype: torch.dtype = torch.float64, bias: bool = True) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    hidden = torch.randn(2, 5, M, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, M, dtype=dtype, requires_grad=True)
    labels = torch.randint(V, (2, 5))
    labels[0, 1] = labels[1, 4] = IGNORE
    return hidden, weight, torch.randn(V, dtype=dtype, requires_grad=True) if bias else None, labels


def grads(loss: Tensor, *of: Tensor | None) -> list[Tensor]:
    return list(torch.autograd.grad(loss, [x for x in of if x is not None]))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_plain_is_the_formula(smoothing: float) -> None:
    logits, labels = torch.randn(2, 5, V, dtype=torch.float64), problem()[3]
    sums = cross_entropy(logits, labels, smoothing)
    log_p, keep = logits.log_softmax(-1), labels != IGNORE
    nll = -log_p.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    expected = (1 - smoothing) * nll - smoothing * log_p.mean(-1)
    torch.testing.assert_close(sums.loss, expected[keep].sum())
    torch.testing.assert_close(sums.nll, nll[keep].sum())
    assert int(sums.n_labels) == 8


def test_z_loss_is_the_square_of_the_normalizer() -> None:
    logits, labels = torch.randn(2, 5, V, dtype=torch.float64), problem()[3]
    without, sums = cross_entropy(logits, labels), cross_entropy(logits, labels, z_loss=1e-2)
    squares = logits[labels != IGNORE].exp().sum(-1).log() ** 2
    torch.testing.assert_close(sums.loss - without.loss, 1e-2 * squares.sum())
    torch.testing.assert_close(sums.nll, without.nll)
    with pytest.raises(ValueError, match="z_loss"):
        cross_entropy(logits, labels, z_loss=-1.0)


@pytest.mark.parametrize("chunk, block", [(1, 1), (3, 2), (100, 3), (100, 100)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("z_loss", [0.0, 0.05])
def test_fused_is_plain_in_any_chunks(
    monkeypatch: pytest.MonkeyPatch, smoothing: float, z_loss: float, bias: bool, chunk: int, block: int
) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 8 * V * chunk)
    monkeypatch.setattr(module, "CACHE_BYTES", 8 * V * block)
    hidden, weight, b, labels = problem(bias=bias)
    fused = linear_cross_entropy(hidden, weight, b, labels, smoothing, z_loss)
    plain = cross_entropy(torch.nn.functional.linear(hidden, weight, b), labels, smoothing, z_loss)
    torch.testing.assert_close(fused, plain)
    torch.testing.assert_close(grads(3 * fused.loss, hidden, weight, b), grads(3 * plain.loss, hidden, weight, b))
    assert not fused.nll.requires_grad


@pytest.mark.parametrize(
    "rows, width, vocab, device, held",
    [
        (4096, 64, 6000, "cpu", module.CHUNK_ROWS),
        (4096, 384, 6000, "cpu", 768),
        (100, 384, 6000, "cpu", 100),
        (4096, 4096, 50257, "cpu", module.CHUNK_BYTES // (4 * 50257)),
        (4096, 64, 6000, "meta", 4096),
    ],
)
def test_how_many_rows_are_held_at_once(rows: int, width: int, vocab: int, device: str, held: int) -> None:
    assert module.rows_at_once(torch.empty(rows, width, device=device), vocab) == held


@pytest.mark.parametrize("smoothing, z_loss", [(0.0, 0.0), (0.2, 0.0), (0.2, 0.1)])
def test_gradients_by_differences(smoothing: float, z_loss: float) -> None:
    hidden, weight, bias, labels = problem()
    assert torch.autograd.gradcheck(
        lambda h, w, b: linear_cross_entropy(h, w, b, labels, smoothing, z_loss).loss, (hidden, weight, bias)
    )


def test_all_labels_ignored_is_zero_with_zero_gradients() -> None:
    hidden, weight, bias, labels = problem(torch.float32)
    for sums in (
        linear_cross_entropy(hidden, weight, bias, labels.fill_(IGNORE), 0.1),
        cross_entropy(torch.nn.functional.linear(hidden, weight, bias), labels, 0.1),
    ):
        assert sums.loss == 0 and sums.nll == 0 and int(sums.n_labels) == 0
        assert all((g == 0).all() for g in grads(sums.loss, hidden, weight, bias))


def test_only_what_is_trained_gets_a_gradient() -> None:
    hidden, weight, bias, labels = problem()
    frozen = linear_cross_entropy(hidden.detach(), weight, None, labels).loss
    torch.testing.assert_close(
        *grads(frozen, weight), *grads(linear_cross_entropy(hidden, weight, None, labels).loss, weight)
    )
    with torch.no_grad():
        assert not linear_cross_entropy(hidden, weight, bias, labels).loss.requires_grad


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("trained", [{"hidden"}, {"weight"}, {"bias"}, {"hidden", "bias"}, {"hidden", "weight"}])
def test_gradients_that_nothing_asks_for_are_not_computed(
    monkeypatch: pytest.MonkeyPatch, trained: set[str], compiled: bool
) -> None:
    """As in LoRA, which freezes the output matrix: its gradient would cost a product and its size in memory."""
    hidden, weight, bias, labels = problem(torch.float32)
    assert bias is not None
    leaves = {"hidden": hidden, "weight": weight, "bias": bias}
    exact = torch.autograd.grad(
        linear_cross_entropy(hidden, weight, bias, labels, 0.1).loss, [leaves[x] for x in sorted(trained)]
    )
    for name, leaf in leaves.items():
        leaf.requires_grad_(name in trained)
    products: list[torch.Size] = []
    add = module._add_product

    def counted(total: Tensor, *others: Any) -> None:
        products.append(total.shape)
        add(total, *others)

    monkeypatch.setattr(module, "_add_product", counted)
    loss = (
        torch.compile(linear_cross_entropy, backend="aot_eager", fullgraph=True) if compiled else linear_cross_entropy
    )
    made = torch.autograd.grad(loss(hidden, weight, bias, labels, 0.1).loss, [leaves[x] for x in sorted(trained)])
    torch.testing.assert_close(made, exact)
    assert len(products) == ("weight" in trained)


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True), (False,) * 3])
def test_gradients_that_are_not_wanted_are_empty(wanted: tuple[bool, bool, bool]) -> None:
    hidden, weight, bias, labels = (x.detach() for x in problem() if x is not None)
    arguments = (hidden.flatten(0, 1), weight, bias, labels.flatten(), 0.1, 0.0, list(wanted))
    registered("linear_cross_entropy")
    found = torch.ops.qkv.linear_cross_entropy(*arguments)[2:]
    for gradient, leaf, there in zip(found, (arguments[0], weight, bias), wanted, strict=True):
        assert gradient.shape == (leaf.shape if there else (0,))
    torch.library.opcheck(torch.ops.qkv.linear_cross_entropy, arguments, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_makes_logits_in_half_and_sums_in_fp32(dtype: torch.dtype) -> None:
    hidden, weight, bias, labels = problem(torch.float32)
    exact = linear_cross_entropy(hidden, weight, bias, labels, 0.1)
    with torch.autocast("cpu", dtype):
        sums = linear_cross_entropy(hidden, weight, bias, labels, 0.1)
    assert sums.loss.dtype == torch.float32 and sums.loss != exact.loss
    torch.testing.assert_close(sums.loss, exact.loss, rtol=1e-2, atol=0)
    made, expected = grads(sums.loss, hidden, weight, bias), grads(exact.loss, hidden, weight, bias)
    for g, e in zip(made, expected, strict=True):
        assert g.dtype == torch.float32 and (g - e).norm() < 0.02 * e.norm()


def test_fp16_gradients_survive_when_the_loss_is_scaled() -> None:
    """A scaler is there so that small gradients don't vanish in fp16: confident predictions over a large vocabulary."""
    hidden = torch.randn(4, 16).requires_grad_()
    weight = (torch.randn(2000, 16) * 1.2).requires_grad_()
    labels = (hidden @ weight.T).argmax(-1)[None]
    exact = grads(linear_cross_entropy(hidden[None], weight, None, labels).loss, hidden)[0]
    with torch.autocast("cpu", torch.float16):
        loss = linear_cross_entropy(hidden[None], weight, None, labels).loss
        plain = cross_entropy(torch.nn.functional.linear(hidden[None], weight), labels).loss
    fused_error, plain_error = (
        (grads(x * 1024, hidden)[0] / 1024 - exact).norm() / exact.norm() for x in (loss, plain)
    )
    assert fused_error < 2 * plain_error + 1e-3


@pytest.mark.parametrize("shape", [(2, 4), (2, 6), (1, 5)])
def test_labels_that_do_not_match_the_hidden_states_are_refused(shape: tuple[int, int]) -> None:
    """Rows are picked by label, so too few of them would silently be compared with the wrong states."""
    hidden, weight, _, _ = problem()
    labels = torch.randint(V, shape)
    labels[0, 2] = IGNORE
    with pytest.raises(ValueError, match="labels"):
        linear_cross_entropy(hidden, weight, None, labels)
    with pytest.raises(ValueError, match="labels"):
        cross_entropy(hidden @ weight.T, labels)


def test_what_was_in_memory_before_stays_out_of_it() -> None:
    """Rows are held a little wider than the vocabulary, and a bf16 product may read what stands there."""
    for vocab in (23, 31, 257):
        hidden = torch.randn(18, 16, dtype=torch.bfloat16, requires_grad=True)
        weight = torch.randn(vocab, 16, requires_grad=True)
        for _ in range(20):
            old = [
                torch.full((n,), float("nan"), dtype=torch.bfloat16) for n in (256, 1024, 4096, 16384) for _ in range(8)
            ]
            del old
            loss = linear_cross_entropy(hidden, weight, None, torch.arange(18) % vocab).loss
            assert all(torch.isfinite(grad).all() for grad in torch.autograd.grad(loss, (hidden, weight)))
