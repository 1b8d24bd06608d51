"""Products by oneDNN give what `F.linear` gives, with gradients, and are left out if something watches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from gradient_kernels import compute_by_panels
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from qkv.nn.kernels.products import onednn
from qkv.nn.kernels.products.dense import dense_product
from qkv.nn.layers.losses import linear_cross_entropy

pytestmark = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")),
    reason="this PyTorch has no oneDNN",
)


@pytest.fixture(autouse=True)
def _everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """On any processor, and for small products too."""
    monkeypatch.setattr(onednn, "is_faster", lambda: True)
    monkeypatch.setattr(onednn, "LEAST", 1)


@pytest.fixture(params=[False, True], ids=["by copies", "by panels"])
def panels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether gradients of weights are by the C++ kernels."""
    return compute_by_panels(request.param, monkeypatch)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.Size]]:
    """Shapes of the outputs of oneDNN's products so far."""
    seen, original = list[torch.Size](), onednn.product

    def noted(*inputs: torch.Tensor | None) -> torch.Tensor:
        out = original(*inputs)  # type: ignore[arg-type]
        seen.append(out.shape)
        return out

    monkeypatch.setattr(onednn, "product", noted)
    yield seen


@pytest.mark.parametrize("shape", [(40, 24), (3, 50, 24), (2, 3, 20, 24)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_outputs_and_gradients(shape: tuple[int, ...], has_bias: bool, panels: bool, calls: list[torch.Size]) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(shape), torch.randn(32, 24), torch.randn(32) if has_bias else None
    gradient = torch.randn(*shape[:-1], 32)
    found = _with_gradients(dense_product, x, weight, bias, gradient)
    assert len(calls) == 3 - panels  # forward, and the gradients of x and the weight
    wide = (None if t is None else t.double() for t in (x, weight, bias, gradient))
    for own, exact in zip(found, _with_gradients(F.linear, *wide), strict=True):
        torch.testing.assert_close(own.double(), exact, rtol=1e-5, atol=1e-5)


def _with_gradients(product, x, weight, bias, gradient):  # type: ignore[no-untyped-def]
    leaves = [t.clone().requires_grad_() for t in (x, weight, bias) if t is not None]
    out = product(*leaves)
    out.backward(gradient)
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def test_only_wanted_gradients_are_computed(panels: bool, calls: list[torch.Size]) -> None:
    x, weight = torch.randn(40, 24), torch.randn(32, 24, requires_grad=True)
    dense_product(x, weight).sum().backward()
    assert calls == [(40, 32), (32, 24)][: 2 - panels] and x.grad is None
    x.requires_grad_()
    bias = torch.zeros(32, requires_grad=True)
    dense_product(x, weight.detach(), bias).sum().backward()
    assert torch.equal(bias.grad, torch.full((32,), 40.0)), "also if the weight is frozen"  # type: ignore[arg-type]


def test_gradients_of_gradients() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(40, 24, requires_grad=True), torch.randn(32, 24, requires_grad=True)
    found = []
    for product in (dense_product, F.linear):
        (d_x,) = torch.autograd.grad(product(x, weight).square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(d_x.square().sum(), weight)[0])
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-3)


def test_the_loss_over_a_vocabulary(panels: bool, calls: list[torch.Size], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    labels = torch.randint(0, 90, (2, 30))
    labels[0, :5] = -100
    found = []
    for faster in (True, False):
        monkeypatch.setattr(onednn, "is_faster", lambda faster=faster: faster)
        torch.manual_seed(1)
        leaves = [torch.randn(2, 30, 24, requires_grad=True), torch.randn(90, 24, requires_grad=True)]
        leaves.append(torch.randn(90, requires_grad=True))
        loss = linear_cross_entropy(*leaves, labels, label_smoothing=0.1).loss  # type: ignore[arg-type, misc]
        loss.backward()
        found.append([loss.detach(), *(leaf.grad for leaf in leaves)])
    assert calls
    for own, other in zip(*found, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-5)


def test_nothing_is_hidden_from_those_who_watch(calls: list[torch.Size]) -> None:
    x, weight = torch.randn(40, 24), torch.randn(32, 24)
    with FlopCounterMode(display=False) as counter:
        dense_product(x, weight)
    assert counter.get_total_flops() == 2 * 40 * 24 * 32
    torch.func.vmap(dense_product, (0, None))(x[None], weight)
    with torch.autocast("cpu", torch.bfloat16):
        assert dense_product(x, weight).dtype == torch.bfloat16
    dense_product(x.double(), weight.double())
    assert not calls


def test_processors_that_gain_from_onednn_are_recognized(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(onednn, "CPU_INFO", info)
    for vendor, capability, faster in (
        ("AuthenticAMD", "AVX512", torch.backends.mkl.is_available()),
        ("AuthenticAMD", "AVX2", False),
        ("GenuineIntel", "AVX512", False),
    ):
        info.write_text(f"vendor_id : {vendor}\n")
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda capability=capability: capability)
        assert onednn.is_faster.__wrapped__() == faster
    info.unlink()
    assert not onednn.is_faster.__wrapped__()
