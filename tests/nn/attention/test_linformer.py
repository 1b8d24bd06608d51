"""Linformer: the projection against its equation, row by row; the layer's sharing, lengths, cost and refusals."""

from __future__ import annotations

import copy
from functools import reduce
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import qkv
from qkv.core.layout import Layout
from qkv.nn.attention import tap
from qkv.nn.attention.linformer import Linformer, MultiHeadLinformer, linformer
from qkv.nn.attention.mixer import Pass
from qkv.nn.kv_cache.full import SlotTables
from qkv.nn.patterns.basic import causal
from qkv.nn.positions.base import PositionModule, Widths
from qkv.nn.positions.bias import ALiBi
from qkv.nn.positions.rotary import Rotary

H, K, D, E, RANK, N = 4, 2, 6, 5, 3, 9


def drawn(rows: int, t: int, shared: bool) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    heads = 1 if shared else K
    shapes = [(rows, t, H, D), (rows, t, K, D), (rows, t, K, E), (heads, RANK, N), (heads, RANK, N)]
    return tuple(torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)


def alone(q: Tensor, k: Tensor, v: Tensor, e: Tensor, f: Tensor, scale: float) -> Tensor:
    """One unpadded row, head by head: softmax(scale · Q (E K)ᵀ) F V."""
    out = []
    for head in range(H):
        group, t = head // (H // K), len(q)
        e_h, f_h = e[group % len(e), :, :t], f[group % len(f), :, :t]
        weights = (scale * q[:, head] @ (e_h @ k[:, group]).T).softmax(-1)
        out.append(weights @ (f_h @ v[:, group]))
    return torch.stack(out, 1)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("side", ["none", "right", "left", "holes"])
def test_every_row_is_as_if_alone(side: str, shared: bool) -> None:
    lengths = [7, 7] if side == "none" else [7, 2, 5]
    q, k, v, e, f = drawn(len(lengths), 8 if side != "none" else 7, shared)
    layout = Layout.full(7)
    if side in ("right", "left"):
        layout = Layout.from_lengths(lengths, 8, side)  # type: ignore[arg-type]
    elif side == "holes":
        mask = torch.zeros(3, 8, dtype=torch.bool)
        for row, n in enumerate(lengths):
            mask[row, torch.randperm(8, generator=torch.Generator().manual_seed(row))[:n]] = True
        layout = Layout.from_mask(mask)
    k, v = (t.masked_fill(~layout.valid[..., None, None], float("nan")) for t in (k, v))
    found = linformer(q, k, v, e, f, layout, scale=0.4)
    for row in range(len(lengths)):
        real = layout.valid.expand(len(lengths), -1)[row]
        wanted = alone(q[row, real], k[row, real], v[row, real], e, f, 0.4)
        torch.testing.assert_close(found[row, real], wanted)
        assert not found[row, ~real].any()


def test_a_projection_that_selects_is_attention_to_what_it_selects() -> None:
    q, k, v, *_ = drawn(1, N, True)
    chosen = torch.eye(N, dtype=torch.float64)[None, [1, 4, 8]]
    found = linformer(q, k, v, chosen, chosen, Layout.full(N), 1.0)
    whole = torch.eye(N, dtype=torch.float64)[None]
    wanted = linformer(q, k[:, [1, 4, 8]], v[:, [1, 4, 8]], whole[:, :3], whole[:, :3], Layout.full(3), 1.0)
    torch.testing.assert_close(found, wanted)


def test_what_does_not_fit() -> None:
    q, k, v, e, f = drawn(1, N + 2, True)
    with pytest.raises(ValueError, match=r"11 tokens don't fit .* max_positions=9"):
        linformer(q, k, v, e, f, Layout.full(N + 2), 1.0)
    with pytest.raises(ValueError, match="several documents"):
        linformer(q, k, v, e, f, Layout.packed([[4, 7]]), 1.0)
    padded = Layout.from_lengths([N], N + 2, "left")  # wider than the projection, but its tokens fit
    assert bool(linformer(q, k, v, e, f, padded, 1.0).isfinite().all())
    assert bool(linformer(q, k, v, e, f, Layout.from_lengths([N], N + 2), 1.0).isfinite().all())


def test_padded_queries_leave_gradients_alone() -> None:
    layout, grads = Layout.from_lengths([6, 4]), []
    for filled in (0.0, float("nan")):
        random = torch.Generator().manual_seed(0)
        q, k, v = (torch.randn(2, 6, 2, 4, dtype=torch.float64, generator=random) for _ in range(3))
        project = torch.randn(1, 3, 6, dtype=torch.float64, generator=random)
        q[~layout.valid] = filled
        leaves = [x.requires_grad_() for x in (q, k, v)]
        linformer(*leaves, project, project, layout, 0.5).square().sum().backward()
        grads.append([x.grad for x in leaves])
    torch.testing.assert_close(*grads)


# -- the layer ---------------------------------------------------------------------------------------------------------


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
        patch.setattr(
            "qkv.nn.models.stack.reversible", lambda blocks, x, runs: reduce(lambda x, f: f(x, runs[0]), blocks, x)
        )
        torch.testing.assert_close(gradient(), found)


def test_layers_that_share_need_one_shape() -> None:
    with pytest.raises(ValueError, match=r"share project_keys need it in one shape, not \(1, 3, 16\) and \(1, 4, 16"):
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


@pytest.mark.slow
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
    with tap.record_attention() as requests:
        model()(torch.zeros(1, 5, dtype=torch.long))
    assert requests == []


def test_what_a_layer_does_not_fit() -> None:
    module, spec = layer()
    zeros = torch.zeros(1, 10, M, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"10 tokens don't fit .* max_positions=9; shorten"):
        module(zeros, Pass.over(qkv.Layout.full(10), PositionModule()))
    with pytest.raises(ValueError, match="take none, sinusoidal, learned or rotary positions"):
        module(zeros[:, :5], Pass.over(qkv.Layout.full(5), ALiBi().module(Widths(M, 4, 3, None))))
    with pytest.raises(ValueError, match="several documents"):
        module(zeros[:, :5], Pass.over(qkv.Layout.packed([[2, 3]]), PositionModule()))
    with pytest.raises(ValueError, match="can't decode token by token"):
        spec.state(SlotTables())
    with pytest.raises(ValueError, match="for cross-attention take attention"):
        spec.module(M, cross=True)
    with pytest.raises(ValueError, match=r"its pattern is full\(\)"):
        Linformer(**SIZES, pattern=causal())
    with pytest.raises(ValueError, match="has no backend, which belongs to attention"):
        Linformer(**SIZES, backend="tiled")
    with pytest.raises(ValueError, match="max_positions"):
        Linformer(n_heads=4)
