"""backend = reference: every way of computing attention gives the numbers of the equation, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from axes import BLOCKS, FAMILIES, HEADS, backends, biases, named, patterns, positions, words
from oracle import attention, dense, visible
from selection import Combination, Contract
from small import (
    alone,
    distance,
    gradients,
    ids,
    model,
    packed,
    padded,
    randn,
    same,
    same_gradients,
    vague,
    with_prefix,
)
from torch import Tensor

import qkv
from qkv.core.layout import Layout, Role
from qkv.nn.attention.attend import attend
from qkv.nn.positions.base import Bias, Position, Widths

H = 4


class Places(NamedTuple):
    rows: int
    layout: Layout
    kv_layout: Layout


def _self(layout: Layout, rows: int = 2) -> Places:
    return Places(rows, layout, layout)


def _later() -> Places:
    """Queries that follow the keys' beginning, as in decoding."""
    whole = alone(14)
    return Places(2, whole.slice(11, 14), whole)


def _cross() -> Places:
    return Places(3, padded([5, 4, 2], "right"), padded([7, 1, 4], "left", 9))


def _long() -> Places:
    """More than one tile of queries and of keys, the first row half empty."""
    return Places(2, packed([[37, 200], [280]], 300), packed([[500, 200], [1040]], 1050))


PLACES: dict[str, Callable[[], Places]] = {
    "plain": lambda: _self(alone(11)),
    "right": lambda: _self(padded([9, 4, 1], "right"), 3),
    "left": lambda: _self(padded([3, 9, 7], "left"), 3),
    "holes": lambda: _self(padded([3, 9, 7], "holes", 12), 3),
    "packed": lambda: _self(packed([[4, 1, 5], [6, 3]], 11)),
    "empty": lambda: _self(padded([4, 0], "right", 6)),
    "vague": lambda: _self(vague(alone(11))),
    "later": _later,
    "cross": _cross,
    "long": _long,
}

# Heads and widths: key-value heads, width of queries, width of values.
SHAPES = {"MHA": (4, 8, 8), "GQA": (2, 8, 8), "MQA": (1, 8, 8), "wide": (4, 8, 12), "narrow": (2, 8, 4)}
EXTRAS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lse": {"return_lse": True},
    "softcap": {"softcap": 1.5, "scale": 0.9},
    "both": {"softcap": 2.0, "return_lse": True},
}
TOLERANCES = {"float64": 1e-9, "float32": 1e-5, "bfloat16": 0.0}


def refused(case: Combination) -> str | None:
    if case.backend == "sdpa" and case.extra != {}:
        return "sdpa: the fused function has no soft-cap and returns no log-sum-exp"
    return None


def problem(case: Combination, dtype: torch.dtype) -> tuple[Places, list[Tensor], Bias | Tensor | None]:
    """Places, then leaves: q, k, v, and what the bias is made of."""
    rows, layout, kv_layout = places = PLACES[case.place]()
    (t, s), (kv, d, e) = (layout.shape[1], kv_layout.shape[1]), case.shape
    leaves = [randn(rows, t, H, d, seed=1), randn(rows, s, kv, d, seed=2), randn(rows, s, kv, e, seed=3)]
    bias: Bias | Tensor | None = None
    if case.bias == "dense":
        leaves.append(randn(1, H, t, s, seed=4))
    elif case.bias == "keys":  # one for each key, −∞ for one of them
        leaves.append(randn(rows, 1, 1, s, seed=4))
    leaves = [leaf.to(dtype).requires_grad_() for leaf in leaves]
    if case.bias in ("dense", "keys"):
        bias = leaves[3]
    if case.bias == "keys":
        bias = torch.where(torch.arange(s) == s // 2, float("-inf"), leaves[3])
    if isinstance(case.bias, Position):
        module = case.bias.module(Widths(H * d, H, d, None))
        for parameter in module.parameters():
            parameter.data = randn(*parameter.shape, seed=5, dtype=dtype)
        bias = module.bias()
        leaves += list(module.parameters())
    return places, leaves, bias


def outputs(result: Any) -> tuple[Tensor, Tensor | None]:
    return result if isinstance(result, tuple) else (result, None)


def backward(out: Tensor, lse: Tensor | None, leaves: list[Tensor]) -> list[Tensor]:
    loss = (out.double() * randn(*out.shape, seed=6)).sum()
    if lse is not None:
        loss = loss + (lse.double() * randn(*lse.shape, seed=7)).masked_fill(lse == float("-inf"), 0.0).sum()
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, found, strict=True)]


def plainly(case: Combination, dtype: torch.dtype, as_if: torch.dtype | None = None) -> tuple[list[Tensor], Tensor]:
    """Output, log-sum-exp if asked for, and gradients in plain PyTorch, from inputs rounded to `as_if`; the mask."""
    (rows, layout, kv_layout), leaves, bias = problem(case, as_if or dtype)
    if as_if is not None:
        leaves = [leaf.detach().to(dtype).requires_grad_() for leaf in leaves]
        bias = _again(bias, leaves)
    mask = visible(case.pattern, layout, kv_layout, rows, H)
    wanted_bias = dense(bias, layout, kv_layout, rows)
    if wanted_bias is not None:
        mask = mask & (wanted_bias != float("-inf"))
        wanted_bias = wanted_bias.masked_fill(wanted_bias == float("-inf"), 0.0)
    options = {name: value for name, value in case.extra.items() if name != "return_lse"}
    out, lse = attention(*leaves[:3], mask, wanted_bias, **options)
    lse = lse if case.extra.get("return_lse") else None
    return [out, *([] if lse is None else [lse]), *backward(out, lse, leaves)], mask


def _again(bias: Bias | Tensor | None, leaves: list[Tensor]) -> Bias | Tensor | None:
    """The same bias from other leaves."""
    if isinstance(bias, Bias):
        return Bias(bias.scheme, tuple(leaves[3:]) or bias.tensors)
    if bias is None:
        return None
    return leaves[3].masked_fill(bias == float("-inf"), float("-inf"))


def served(case: Combination, dtype: torch.dtype) -> list[Tensor]:
    (_, layout, kv_layout), leaves, bias = problem(case, dtype)
    result = attend(
        *leaves[:3],
        pattern=case.pattern,
        layout=layout,
        kv_layout=kv_layout,
        bias=bias,
        backend=case.backend,
        **case.extra,
    )
    out, lse = outputs(result)
    assert out.dtype == dtype
    return [out, *([] if lse is None else [lse]), *backward(out, lse, leaves)]


ATTEND = Contract(
    {
        "pattern": patterns(),
        "bias": biases(),
        "backend": backends(),
        "place": words(*PLACES),
        "shape": named(SHAPES),
        "extra": named(EXTRAS),
        "dtype": words(*TOLERANCES),
    },
    refused,
    turned=["shape", "extra", "dtype"],
)


@pytest.mark.contract(ATTEND)
def test_each_backend_attends_as_the_plain_equation(case: Combination) -> None:
    dtype = getattr(torch, case.dtype)
    wanted, mask = plainly(case, torch.float64, as_if=dtype)
    found = served(case, dtype)
    empty = ~mask.any(-1).transpose(1, 2)
    assert all(bool((f.isfinite() | (f == float("-inf"))).all()) for f in found)
    assert bool((found[0][empty] == 0).all()), "a row that may see nothing gives 0"
    allowed = [TOLERANCES[case.dtype]] * len(found)
    if dtype == torch.bfloat16:
        plain, _ = plainly(case, dtype)
        n = 2 if case.extra.get("return_lse") else 1
        allowed = [(2 if i < n else 3) * apart(p, w) for i, (p, w) in enumerate(zip(plain, wanted, strict=True))]
    for i, (f, w, limit) in enumerate(zip(found, wanted, allowed, strict=True)):
        assert apart(f, w) <= limit, (
            f"value {i} of output, (lse,) gradients is {apart(f, w):.3g} apart, over {limit:.3g}"
        )


def apart(found: Tensor, wanted: Tensor) -> float:
    """Relative distance over what is finite; infinities have to be the same. All but nothing counts as nothing."""
    assert torch.equal(found == float("-inf"), wanted == float("-inf"))
    found, wanted = (t.detach().double().masked_fill(t == float("-inf"), 0.0) for t in (found, wanted))
    if float(wanted.abs().max()) < 1e-12:
        return float(found.abs().max())
    return distance(found, wanted)


MODELS = Contract(
    {
        "pattern": patterns(),
        "position": positions(),
        "backend": [e for e in backends() if e.value != "reference"],
        "family": words(*FAMILIES),
        "heads": named(HEADS),
        "block": named(BLOCKS),
    },
    turned=["heads", "block"],
)


@pytest.mark.contract(MODELS)
def test_models_give_the_same_on_each_backend(case: Combination) -> None:
    parts = {"heads": case.heads, "block": case.block}
    found, wanted = (
        run(model(case.family, case.pattern, case.position, name, **parts)) for name in (case.backend, "reference")
    )
    same(found[0], wanted[0])
    same_gradients(found[1], wanted[1])


def run(built: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits at real tokens and gradients, over a left-padded batch (beside a right-padded source)."""
    layout = padded([6, 9, 2], "left")
    tokens = ids(*layout.shape, seed=2)
    if built.is_encoder_decoder:
        source = padded([3, 1, 5], "right")
        out = built(ids(*source.shape, seed=1), tokens, layout=source, target_layout=layout)
    else:
        out = built(tokens, layout=layout)
    (out[layout.valid] * randn(*out[layout.valid].shape, seed=3)).sum().backward()
    return out[layout.valid], gradients(built)


def test_the_longest_places_are_more_than_one_tile() -> None:
    from qkv.nn.kernels.cpu.flash_attention import tile_grid

    rows, layout, kv_layout = PLACES["long"]()
    grid = tile_grid(qkv.full(), layout, kv_layout, rows * H, "cpu")
    assert min(grid.blocks.maybe.shape) > 1


def test_with_prefix_marks_the_first_tokens() -> None:
    layout = with_prefix(Layout.full(5))
    assert layout.roles is not None and (layout.roles & Role.PREFIX).tolist() == [[4, 4, 4, 0, 0]]
