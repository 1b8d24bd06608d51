"""Linformer as a layer: equation, sharing, lengths, cost, and what it refuses."""

from __future__ import annotations

import copy
from functools import reduce
from typing import Any

import pytest
import torch
from torch import nn

import qkv
from qkv.attention import tap
from qkv.attention.linformer import Linformer, MultiHeadLinformer
from qkv.attention.multi_head import Pass
from qkv.kv_cache.full import SlotTables
from qkv.patterns.basic import causal
from qkv.positions.base import PositionModule, Widths
from qkv.positions.bias import ALiBi
from qkv.positions.rotary import Rotary

M, T = 12, 7
SIZES: dict[str, Any] = {"n_heads": 4, "n_kv_heads": 2, "max_positions": 9, "rank": 3}


SHARED = {"encoder.blocks.*.attention.share": "layers"}


def layer(**options: Any) -> tuple[MultiHeadLinformer, Linformer]:
    spec = Linformer(**{**SIZES, **options})
    module = spec.module(M).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    assert isinstance(module, MultiHeadLinformer)
    return module, spec


def model(**options: Any) -> Any:
    mixer = Linformer(n_heads=4, max_positions=16, rank=4, **options)
    spec = qkv.preset("bert-base", n_layers=2, d_model=32, n_heads=4, vocab_size=19, max_positions=16)
    return qkv.build(spec.replace({"encoder.blocks.*.attention": mixer}), dtype=torch.float64).eval()


@pytest.mark.parametrize(("share", "matrices"), [("none", 4), ("heads", 2), ("keys-values", 1), ("layers", 1)])
def test_the_equation_and_what_is_shared(share: str, matrices: int) -> None:
    module, spec = layer(share=share, d_value=5)
    x = torch.randn(2, T, M, dtype=torch.float64)
    q, k, v = (f(x).unflatten(-1, (n, -1)) for f, n in ((module.q, 4), (module.k, 2), (module.v, 2)))
    e = module.project_keys
    f = e if module.project_values is None else module.project_values
    out = []
    for head in range(4):
        e_h, f_h = (p.expand(2, -1, -1)[head // 2, :, :T] for p in (e, f))
        weights = (q[:, :, head] @ (e_h @ k[:, :, head // 2]).mT / 3**0.5).softmax(-1)
        out.append(weights @ (f_h @ v[:, :, head // 2]))
    run = Pass.over(qkv.Layout.full(T), PositionModule())
    torch.testing.assert_close(module(x, run), module.out(torch.cat(out, -1)))
    count = sum(p.numel() for p in module.parameters())
    assert spec.cost(M).parameters == count
    projections = sum(p.numel() for name, p in module.named_parameters() if name.startswith("project"))
    assert projections == matrices * 3 * 9


def test_layers_share_one_matrix_and_its_gradient_is_the_sum_of_theirs() -> None:
    built, apart = model(share="layers"), model(share="keys-values")
    names = [f"encoder.blocks.{i}.attention.project_keys" for i in range(2)]
    for some in (built, built.float(), copy.deepcopy(built).double(), qkv.replace(apart, SHARED).model):
        first, second = (some.get_parameter(name) for name in names)
        assert first is second
        assert some.spec.n_parameters == sum(p.numel() for p in some.parameters())
    built = built.double()
    state = built.state_dict()
    apart.load_state_dict(state)
    ids = torch.arange(10)[None] % 7
    torch.testing.assert_close(built(ids), apart(ids))
    for some in (built, apart):
        some(ids).square().sum().backward()
    each = [apart.get_parameter(name).grad for name in names]
    torch.testing.assert_close(built.get_parameter(names[0]).grad, each[0] + each[1])


def test_reversible_layers_share_it_too() -> None:
    spec = model(share="layers").spec.replace({"encoder.blocks.*.placement": "reversible"})
    built = qkv.build(spec, dtype=torch.float64).eval()
    ids = torch.arange(10)[None] % 7

    def gradient() -> Any:
        built.zero_grad()
        built.hidden(ids).square().sum().backward()
        return built.encoder.blocks[1].attention.project_keys.grad.clone()

    found = gradient()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("qkv.models.stack.reversible", lambda blocks, x, run: reduce(lambda x, f: f(x, run), blocks, x))
        torch.testing.assert_close(gradient(), found)


def test_layers_that_share_need_one_shape() -> None:
    with pytest.raises(
        ValueError, match=r"share project_keys need it in one shape, and these have \(1, 3, 16\) and \(1, 4"
    ):
        model(share="layers").spec.replace({"encoder.blocks.0.attention.rank": 3})


def test_costs_are_linear_in_the_length() -> None:
    spec = Linformer(n_heads=4, max_positions=90, rank=3)
    projections = 2 * 4 * M * M * T
    assert spec.cost(M, T, T * T).flops == projections + 2 * 3 * T * M * 2 + 2 * 3 * T * M * 2
    assert spec.cost(M, 10 * T).flops == 10 * spec.cost(M, T).flops


def test_rotary_scores_are_sums_of_relative_ones() -> None:
    """Positions moved on by a number give the same, as far as columns move too."""
    module, _ = layer(d_head=4)
    x, rotary = torch.randn(1, 4, M, dtype=torch.float64), Rotary().module(Widths(M, 4, 4, None))
    runs = [Pass.over(qkv.Layout.full(4, start=start), rotary) for start in (0, 5)]
    first = module(x, runs[0])
    with torch.no_grad():
        for p in (module.project_keys, module.project_values):
            p.copy_(p.roll(5, -1))
    torch.testing.assert_close(module(x, runs[1]), first, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("side", ["right", "left"])
def test_padded_is_alone_and_accumulated_is_whole(side: str) -> None:
    built, lengths = model(), [6, 1, 9]
    layout = qkv.Layout.from_lengths(lengths, 10, side)  # type: ignore[arg-type]
    ids = torch.randint(19, (3, 10), generator=torch.Generator().manual_seed(0))
    found = built.hidden(ids, layout=layout)
    (found * layout.valid[..., None]).square().sum().backward()
    together = {name: p.grad.clone() for name, p in built.named_parameters() if p.grad is not None}
    built.zero_grad()
    for row in range(3):
        alone = built.hidden(ids[row][layout.valid[row]][None])
        torch.testing.assert_close(found[row, layout.valid[row]], alone[0])
        alone.square().sum().backward()
    for name, p in built.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(p.grad, together[name])


def test_compiled_is_eager() -> None:
    torch.compiler.reset()
    built = model()
    ids, layout = torch.zeros(2, 7, dtype=torch.long), qkv.Layout.from_lengths([7, 4], side="left")
    compiled = torch.compile(built, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(ids, layout=layout), built(ids, layout=layout))
    torch.compiler.reset()


def test_training_lowers_the_loss() -> None:
    built = model(share="none", dropout=0.1).float().train()
    optimizer = torch.optim.AdamW(built.parameters(), lr=1e-2)
    ids = (torch.arange(16)[None] * torch.tensor([[1], [2], [5], [7]])) % 19
    losses = []
    for _ in range(40):
        loss = built(ids, labels=ids).loss / 64
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


def test_a_tap_sees_no_weights() -> None:
    """They would be over projected keys, which are no tokens."""
    with tap.record() as requests:
        model()(torch.zeros(1, 5, dtype=torch.long))
    assert requests == []


def test_what_does_not_fit() -> None:
    module, spec = layer()
    zeros = torch.zeros(1, 10, M, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"10 tokens don't fit .* max_positions=9; shorten"):
        module(zeros, Pass.over(qkv.Layout.full(10), PositionModule()))
    with pytest.raises(ValueError, match="positions that work are"):
        module(zeros[:, :5], Pass.over(qkv.Layout.full(5), ALiBi().module(Widths(M, 4, 3, None))))
    with pytest.raises(ValueError, match="several documents"):
        module(zeros[:, :5], Pass.over(qkv.Layout.packed([[2, 3]]), PositionModule()))
    with pytest.raises(ValueError, match="does not decode token by token"):
        spec.state(SlotTables())
    with pytest.raises(ValueError, match="to cross, take attention"):
        spec.module(M, cross=True)
    with pytest.raises(ValueError, match=r"its pattern is full\(\)"):
        Linformer(**SIZES, pattern=causal())
    with pytest.raises(ValueError, match="backend belongs to attention"):
        Linformer(**SIZES, backend="tiled")
    with pytest.raises(ValueError, match="max_positions"):
        Linformer(n_heads=4)
