"""Global tokens: the equation row by row, ways to say which they are, and what the mechanism refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qkv.core.layout import Layout, Role
from qkv.nn.attention.longformer import GlobalAttention, MultiHeadGlobalAttention
from qkv.nn.attention.mixer import Pass
from qkv.nn.attention.multi_head import Attention
from qkv.nn.kv_cache.full import CrossState
from qkv.nn.patterns.basic import Pattern, causal, global_tokens, window
from qkv.nn.positions.base import PositionModule, Widths
from qkv.nn.positions.bias import ALiBi
from qkv.nn.positions.rotary import Rotary

M, T = 12, 11
GLOBALS = torch.tensor([[1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], [0] * T, [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]])


def made(**options: Any) -> tuple[MultiHeadGlobalAttention, GlobalAttention]:
    spec = GlobalAttention.from_dict({"n_heads": 4, "pattern": (window(2) | global_tokens()).to_dict(), **options})
    module = spec.module(M).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    assert isinstance(module, MultiHeadGlobalAttention)
    return module, spec


def expected(module: MultiHeadGlobalAttention, x: Tensor, chosen: Tensor, mask: Tensor) -> Tensor:
    """Both kinds of projections for all tokens, and of each row the kind that belongs to it."""
    found = []
    for layers in ((module.q, module.k, module.v), (module.q_global, module.k_global, module.v_global)):
        q, k, v = (layer(x).unflatten(-1, (-1, module.d_head)) for layer in layers)
        k, v = (t.repeat_interleave(module.n_heads // module.n_kv_heads, 2) for t in (k, v))
        scores = torch.einsum("bthd,bshd->bhts", q, k) * module.d_head**-0.5
        weights = scores.masked_fill(~mask[:, None], float("-inf")).softmax(-1)
        found.append(torch.einsum("bhts,bshe->bthe", weights, v).flatten(-2))
    return module.out(torch.where(chosen.bool()[..., None], found[1], found[0]))


@pytest.mark.parametrize("options", [{}, {"n_kv_heads": 2, "bias": False}])
@pytest.mark.parametrize("lengths", [(T, T, T), (T, 4, 8)])
def test_outputs_match_the_equation(options: dict[str, Any], lengths: tuple[int, ...]) -> None:
    module, spec = made(**options)
    layout = Layout.from_lengths(lengths).with_roles(GLOBALS * Role.GLOBAL)
    x, real = torch.randn(3, T, M, dtype=torch.float64), layout.valid.expand(3, T)
    apart = (torch.arange(T)[:, None] - torch.arange(T)).abs() < 2
    chosen = GLOBALS.bool() & real
    mask = (apart | chosen[:, :, None] | chosen[:, None]) & real[:, None] | torch.eye(T, dtype=torch.bool)
    found = module(x, Pass.over(layout, PositionModule()))
    torch.testing.assert_close(found[real], expected(module, x, chosen, mask)[real])
    assert spec.cost(M).parameters == sum(p.numel() for p in module.parameters())


def test_the_first_tokens_or_tokens_with_the_role() -> None:
    by_role, _ = made()
    by_place, _ = made(pattern=(window(2) | global_tokens(2)).to_dict())
    by_place.load_state_dict(by_role.state_dict())
    x, roles = torch.randn(2, T, M, dtype=torch.float64), (torch.arange(T) < 2)[None] * Role.GLOBAL
    first = by_place(x, Pass.over(Layout.full(T), PositionModule()))
    torch.testing.assert_close(by_role(x, Pass.over(Layout.full(T).with_roles(roles), PositionModule())), first)


@pytest.mark.parametrize("lengths", [(5, 6), (1, 7, 3), (4, 4, 3)])
def test_the_first_tokens_of_each_packed_document(lengths: tuple[int, ...]) -> None:
    module, _ = made(pattern=(window(2) | global_tokens(3)).to_dict())
    x, start = torch.randn(1, T, M, dtype=torch.float64), 0
    together = module(x, Pass.over(Layout.packed([lengths]), PositionModule()))
    for length in lengths:
        own = slice(start, start + length)
        start += length
        alone = module(x[:, own], Pass.over(Layout.full(length), PositionModule()))
        torch.testing.assert_close(together[:, own], alone)


def test_marked_tokens_are_counted_on_the_host_and_found_where_they_are() -> None:
    """A layout may know of more global tokens than a part of it has: what is picked besides stays as it is."""
    module, _ = made()
    marked = Layout.from_lengths((T, 4, 8)).with_global(GLOBALS)
    assert marked.n_global == 2 and marked.with_roles(GLOBALS).n_global is None
    x, part = torch.randn(3, T, M, dtype=torch.float64), marked.slice(0, 5)
    assert part.n_global == 2
    found = module(x[:, :5], Pass.over(part, PositionModule()))
    wanted = module(x[:, :5], Pass.over(part.with_roles(part.roles), PositionModule()))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("roles", [None, torch.zeros(1, T, dtype=torch.int64)])
def test_without_global_tokens_it_is_attention(roles: Tensor | None) -> None:
    module, spec = made()
    plain = Attention(n_heads=4, pattern=spec.pattern).module(M).double()
    plain.load_state_dict(module.state_dict(), strict=False)
    layout = Layout.full(T) if roles is None else Layout.full(T).with_roles(roles)
    x, run = torch.randn(2, T, M, dtype=torch.float64), Pass.over(layout, PositionModule())
    torch.testing.assert_close(module(x, run), plain(x, run))


@pytest.mark.parametrize("position", [Rotary(), ALiBi()])
def test_equal_projections_are_attention_with_the_pattern(position: Any) -> None:
    module, spec = made(d_head=4)
    plain = Attention(n_heads=4, d_head=4, pattern=spec.pattern).module(M).double()
    plain.load_state_dict(module.state_dict(), strict=False)
    for name in ("q", "k", "v"):
        getattr(module, f"{name}_global").load_state_dict(getattr(module, name).state_dict())
    layout = Layout.from_lengths((T, 4, 8)).with_roles(GLOBALS * Role.GLOBAL)
    scheme = position.module(Widths(M, 4, 4, None))
    x = torch.randn(3, T, M, dtype=torch.float64)
    found, wanted = (layer(x, Pass.over(layout, scheme)) for layer in (module, plain))
    torch.testing.assert_close(found, wanted)


def test_a_causal_pattern_holds_for_global_tokens_too() -> None:
    module, _ = made(pattern=(causal() & (window(2) | global_tokens(3))).to_dict())
    x = torch.randn(1, T, M, dtype=torch.float64)
    changed = x.clone()
    changed[:, 2:] = 0
    run = Pass.over(Layout.full(T), PositionModule())
    torch.testing.assert_close(module(x, run)[:, :2], module(changed, run)[:, :2])


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: GlobalAttention(n_heads=4, pattern=window(3)), "has no global tokens"),
        (lambda: made()[1].module(M, cross=True), "for cross-attention take attention"),
        (
            lambda: made()[0](torch.randn(1, T, M).double(), Pass.over(Layout.full(T), PositionModule()), CrossState()),
            "can't decode token by token",
        ),
    ],
)
def test_wrong_values_are_refused(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()


def test_the_flops_of_the_first_tokens_are_counted() -> None:
    def flops(pattern: Pattern) -> int:
        return GlobalAttention(n_heads=4, pattern=pattern).cost(M, 10, 30).flops

    assert flops(window(2) | global_tokens(3)) - flops(window(2) | global_tokens()) == 2 * M * M * (3 + 2 * 10)
