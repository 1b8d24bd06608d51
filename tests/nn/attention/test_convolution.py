"""Convolutions over tokens: against PyTorch's convolution, costs, ConvS2S's gate, ByteNet's block, states, refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import qkv
import qkv.testing
from qkv.core.layout import Layout
from qkv.generation.generate import generate
from qkv.nn.attention.convolution import ByteNetConvolution, Convolution
from qkv.nn.attention.mixer import Pass
from qkv.nn.patterns.basic import Pattern, causal, full, window
from qkv.nn.positions.base import PositionModule

M, T = 6, 11


def run(spec: Convolution, x: torch.Tensor, layout: Layout | None = None) -> tuple[Any, torch.Tensor]:
    module: Any = spec.module(M).double()
    generator = torch.Generator().manual_seed(3)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    return module, module(x, Pass.over(layout or Layout.full(x.shape[1]), PositionModule()))


def drawn(rows: int = 2) -> torch.Tensor:
    return torch.randn(rows, T, M, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(("kernel", "dilation", "pattern"), [(3, 1, full()), (5, 2, full()), (2, 3, causal())])
def test_it_is_the_convolution_of_pytorch(kernel: int, dilation: int, pattern: Pattern, gated: bool) -> None:
    spec, x = Convolution(kernel=kernel, dilation=dilation, pattern=pattern, gated=gated), drawn()
    module, y = run(spec, x)
    past = (kernel - 1) * dilation
    padding = (past, 0) if spec.causal else (past // 2, past // 2)
    weight = module.kernel.weight.unflatten(1, (kernel, M)).transpose(1, 2)
    expected = F.conv1d(F.pad(x.mT, padding), weight, module.kernel.bias, dilation=dilation)
    if gated:  # ConvS2S: v([A B]) = A ⊗ σ(B)
        expected = expected[:, :M] * torch.sigmoid(expected[:, M:])
    torch.testing.assert_close(y, expected.mT)


def test_bytenet_block() -> None:
    spec, x = ByteNetConvolution(kernel=3, dilation=2, pattern=causal()), drawn()
    block, y = run(spec, x)
    h = block.reduce(F.relu(block.norm_in(x)))
    h = F.pad(F.relu(block.norm_kernel(h)).mT, (4, 0))
    weight = block.kernel.weight.unflatten(1, (3, M // 2)).transpose(1, 2)
    h = F.conv1d(h, weight, block.kernel.bias, dilation=2).mT
    torch.testing.assert_close(y, block.expand(F.relu(block.norm_out(h))))


@pytest.mark.parametrize(
    "spec",
    [
        Convolution(kernel=5, pattern=causal(), gated=True, bias=False),
        Convolution(dilation=4),
        ByteNetConvolution(d_inner=5),
        ByteNetConvolution(kernel=2, pattern=causal(), norm="rmsnorm"),
    ],
    ids=lambda spec: spec.kind,
)
def test_costs_are_counted(spec: Convolution) -> None:
    module: Any = spec.module(M)
    assert spec.cost(M).parameters == sum(p.numel() for p in module.parameters())
    with FlopCounterMode(display=False) as counter:
        run(spec, drawn(1))
    norms = getattr(spec, "norm", None)
    free = 0 if norms is None else norms.cost(M, T).flops + 2 * norms.cost(spec.width(M), T).flops
    assert spec.cost(M, T).flops - free == counter.get_total_flops()
    qkv.testing.check(spec).raise_for_failures()


def test_receptive_field_of_dilated_layers() -> None:
    """Kernels of 3 with dilations 1, 2, 4, 8: a token sees 31 tokens, and no other."""
    block = {"attention": {"kind": "convolution", "pattern": "causal"}, "feedforward": "none", "norm": "none"}
    blocks = [{**block, "attention": {**block["attention"], "dilation": d}} for d in (1, 2, 4, 8)]  # type: ignore[dict-item]
    spec = qkv.Transformer(vocab_size=9, d_model=4, decoder={"blocks": blocks})
    model = qkv.build(spec, dtype=torch.float64)
    x = torch.randn(1, 50, 4, dtype=torch.float64, requires_grad=True)
    hidden = x
    for layer in model.decoder.layers:
        hidden = layer(hidden, Pass.over(Layout.full(50), PositionModule()))
    hidden[0, -1].sum().backward()
    assert (x.grad[0].abs().sum(-1) > 0).tolist() == [False] * 19 + [True] * 31


def decoder(**changes: Any) -> Any:
    spec = qkv.preset("gpt2", n_layers=2, d_model=8, n_heads=2, vocab_size=13, max_positions=40)
    mixer = Convolution(kernel=3, dilation=2, pattern=causal(), gated=True).replace(changes)
    return qkv.build(spec.replace({"decoder.blocks.*.attention": mixer}), dtype=torch.float64).eval()


def test_the_state_has_the_last_inputs_and_does_not_grow() -> None:
    model = decoder()
    cache, sizes = model.start(2), []
    for n in (1, 7, 1):
        model.step(torch.randint(0, 13, (2, n)), cache)
        sizes.append(cache.nbytes)
    spec = model.spec.decoder.blocks[0].attention
    assert sizes == [2 * 2 * spec.state_parts(8, 9, 8)["inputs"]] * 3 == [2 * 2 * 4 * 8 * 8] * 3
    assert cache.parts == {"inputs": cache.nbytes}
    with pytest.raises(ValueError, match="can't rewind 1"):
        cache.rewind(1)


def test_a_saved_state_continues(tmp_path: Any) -> None:
    model, ids = decoder(), torch.randint(0, 13, (2, 9), generator=torch.Generator().manual_seed(0))
    cache, other = model.start(2), model.start(2)
    model.step(ids[:, :6], cache)
    cache.save(tmp_path / "cache")
    other.load(tmp_path / "cache")
    torch.testing.assert_close(model.step(ids[:, 6:], other), model(ids)[:, -1])


def test_generating_is_what_whole_passes_give() -> None:
    model, prompt = decoder(), [3, 1, 4, 1, 5]
    ids = list(prompt)
    for _ in range(6):
        ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    assert generate(model, [prompt], max_new_tokens=6).best == [ids[5:]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": 4}, "a kernel of 4 tokens has no middle; take an odd kernel"),
        ({"pattern": window(3)}, "pattern of convolution is full\\(\\) or causal\\(\\)"),
        ({"kernel": 0}, "kernel"),
    ],
)
def test_refusals_name_the_reason(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Convolution(**options)


def test_bytenet_is_not_gated_and_none_crosses() -> None:
    with pytest.raises(ValueError, match="gated is for convolution"):
        ByteNetConvolution(gated=True)
    with pytest.raises(ValueError, match="convolution is for self-attention only"):
        Convolution().module(M, cross=True)
    with pytest.raises(ValueError, match=r"decodes token by token with pattern=causal\(\) only"):
        decoder(pattern=full()).start(1)
