"""What `test_flash.py` computes in a separate process, where Triton interprets its kernels, and hands back as numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from qkv.core.layout import Layout, Role
from qkv.nn.attention.attend import attend
from qkv.nn.kernels import flash
from qkv.nn.kernels.native.dropout import DropoutMask, levels
from qkv.nn.patterns.basic import (
    BigBird,
    by_head,
    causal,
    dilated,
    full,
    global_tokens,
    neighborhood,
    prefix,
    sinks,
    strided,
    window,
)
from qkv.nn.positions.base import Bias, Widths
from qkv.nn.positions.bias import ALiBi, T5Buckets

T, HEADS = 40, 4
Options = dict[str, Any]


def start() -> None:
    torch.set_num_threads(1)
    _patch_once()
    flash.sides = lambda q, v: (16, 32)  # small tiles, so 40 tokens make several, the last ones short


def _patch_once() -> None:
    """Triton's interpreter puts its own functions into the language again at every call of a function, which takes most of
    the time; here they are put in once, and stay."""
    from triton.runtime import interpreter

    patch, patched = interpreter._patch_lang, set()

    def once(function: Any) -> Any:
        modules = frozenset(id(x) for x in function.__globals__.values() if x in (interpreter.tl, interpreter.tl.core))
        if modules not in patched:
            patched.add(modules)
            patch(function)
        return interpreter._LangPatchScope()

    interpreter._patch_lang = once


def roles(bit: Role, count: int = 3) -> Layout:
    return Layout.full(T).with_roles((torch.arange(T) < count).long()[None] * int(bit))


def t5(dtype: torch.dtype, bidirectional: bool = True) -> Bias:
    scheme = T5Buckets(buckets=8, max_distance=12, bidirectional=bidirectional)
    return Bias(scheme, (torch.randn(8, HEADS).to(dtype).requires_grad_(),))


def alibi(**options: Any) -> Bias:
    return ALiBi(**options).module(Widths(32, HEADS, 8, None)).bias()


def dense(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(*shape).to(dtype).requires_grad_()


# Options of `attend`, made anew for a dtype.
CASES: dict[str, Callable[[torch.dtype], Options]] = {
    "plain": lambda _: {},
    "causal": lambda _: {"pattern": causal()},
    "sinks": lambda _: {"pattern": causal() & window(5) | causal() & sinks(2)},
    "outside": lambda _: {"pattern": ~window(6)},
    "prefix": lambda _: {"pattern": causal() | prefix(9)},
    "prefix roles": lambda _: {"pattern": causal() | prefix(), "layout": roles(Role.PREFIX)},
    "global roles": lambda _: {"pattern": window(4) | global_tokens(), "layout": roles(Role.GLOBAL)},
    "dilated": lambda _: {"pattern": causal() & dilated(4, 3)},
    "strided": lambda _: {"pattern": strided(5)},
    "bigbird": lambda _: {"pattern": BigBird(size=4, random=1, seed=2, blocks=10, heads=HEADS)},
    "heads": lambda _: {"pattern": by_head(causal(), window(7), full())},
    "image": lambda _: {"pattern": neighborhood(3, grid=(5, 8))},
    "left": lambda _: {"pattern": causal(), "layout": Layout.from_lengths([9, T], side="left")},
    "right": lambda _: {"layout": Layout.from_lengths([T, 33])},
    "empty": lambda _: {"pattern": causal(), "layout": Layout.from_lengths([7, 0], T)},
    "holes": lambda _: {"pattern": causal(), "layout": Layout.from_mask(torch.rand(2, T) < 0.6)},
    "packed": lambda _: {"pattern": causal(), "layout": Layout.packed([[10, 11], [3, 28, 2]], T)},
    "late": lambda _: {"pattern": causal(), "layout": Layout.full(T, start=40), "kv_layout": Layout.full(T, start=30)},
    "capped": lambda _: {"softcap": 1.5, "pattern": causal()},
    "alibi": lambda _: {"bias": alibi(), "pattern": causal()},
    "alibi left": lambda _: {"bias": alibi(scale=0.5), "layout": Layout.from_lengths([9, T], side="left")},
    "alibi bf16": lambda _: {"bias": alibi(precision="bfloat16")},
    "t5": lambda dtype: {"bias": t5(dtype), "layout": Layout.from_lengths([9, T], side="left")},
    "t5 causal": lambda dtype: {"bias": t5(dtype, bidirectional=False), "pattern": causal(), "softcap": 2.0},
    "dense": lambda dtype: {"bias": dense(dtype, 1, HEADS, T, T), "pattern": causal()},
    "dense whole": lambda dtype: {"bias": dense(dtype, 2, HEADS, T, T), "softcap": 2.0},
    "dense rows": lambda dtype: {"bias": dense(dtype, HEADS, T, 1)},
    "dense columns": lambda dtype: {"bias": dense(dtype, 2, 1, 1, T), "layout": Layout.from_lengths([T, 30])},
    "dense numbers": lambda dtype: {"bias": dense(dtype, 2, HEADS, 1, 1), "pattern": ~causal()},
    "hidden": lambda _: {"bias": torch.zeros(T, T).masked_fill(torch.ones(T, T).tril() == 0, float("-inf"))},
}


def agreement(case: str, dtype: torch.dtype, n_kv_heads: int, d: int, e: int) -> list[float]:
    """Relative distances of output, log-sum-exp and gradients (q, k, v, bias) from the reference's in float64."""
    torch.manual_seed(0)
    shapes = (2, T, HEADS, d), (2, T, n_kv_heads, d), (2, T, n_kv_heads, e)
    given = [torch.randn(*shape).to(dtype) for shape in shapes]
    weights = torch.randn(2, T, HEADS, e, dtype=torch.float64), torch.randn(2, HEADS, T, dtype=torch.float64)
    options = CASES[case](dtype)
    found = results("flash", given, options, weights)
    wanted = results("reference", [x.double() for x in given], widened(options), weights)
    assert found[0].dtype == dtype and found[1].dtype == torch.float32
    return [apart(f, w) for f, w in zip(found, wanted, strict=True)]


def widened(options: Options) -> Options:
    def wide(x: Tensor) -> Tensor:
        return x.detach().double().requires_grad_(x.requires_grad)

    bias = options.get("bias")
    if isinstance(bias, Bias):
        return options | {"bias": Bias(bias.scheme, tuple(map(wide, bias.tensors)))}
    return options if bias is None else options | {"bias": wide(bias)}


def results(backend: str, given: list[Tensor], options: Options, weights: tuple[Tensor, Tensor]) -> list[Tensor]:
    tensors = [x.detach().requires_grad_() for x in given]
    out, lse = attend(*tensors, return_lse=True, backend=backend, **options)
    bias = options.get("bias")
    parts = [bias] if isinstance(bias, Tensor) else bias.tensors if bias else []
    trained = [x for x in parts if x.requires_grad]
    value = (out.double() * weights[0]).sum() + (lse.double().masked_fill(lse == -torch.inf, 0.0) * weights[1]).sum()
    return [out.detach(), lse.detach(), *torch.autograd.grad(value, [*tensors, *trained])]


def apart(found: Tensor, wanted: Tensor) -> float:
    """Relative L2 distance over what is finite; infinite if other numbers are finite. All but nothing counts as
    nothing."""
    if not torch.equal(found == -torch.inf, wanted == -torch.inf) or found.isnan().any():
        return float("inf")
    found, wanted = (x.double().masked_fill(x == -torch.inf, 0.0) for x in (found, wanted))
    return float((found - wanted).norm() / wanted.norm().clamp(min=1e-6))


# -- dropout -----------------------------------------------------------------------------------------------------------


def dropped(seed: int, shape: tuple[int, int, int, int], p: float) -> Tensor:
    """Which weights are kept, (B, H, T, S), seen through equal scores and values that are unit vectors."""
    b, h, t, s = shape
    q, k = torch.zeros(b, t, h, 16), torch.zeros(b, s, h, 16)
    v = torch.eye(s)[None, :, None].expand(b, s, h, s)
    torch.manual_seed(seed)
    return attend(q, k, v, dropout=p, backend="flash").transpose(1, 2) > 0


def dropout_agreement(p: float) -> list[float]:
    """As `agreement`, with the mask given to the reference; then the share of weights that were kept."""
    torch.manual_seed(0)
    tensors = [torch.randn(2, T, n, 16, requires_grad=True) for n in (HEADS, 2, 2)]
    weight = torch.randn(2, T, HEADS, 16)
    keep = dropped(7, (2, HEADS, T, T), p)
    torch.manual_seed(7)
    out = attend(*tensors, pattern=causal(), dropout=p, backend="flash")
    found = [out.detach(), *torch.autograd.grad((out * weight).sum(), tensors)]
    q, k, v = (x.double().transpose(1, 2).repeat_interleave(HEADS // x.shape[2], 1) for x in tensors)
    scores = (q @ k.mT / 4).masked_fill(~torch.ones(T, T, dtype=torch.bool).tril(), -torch.inf)
    plain = ((scores.softmax(-1) * keep / (1 - levels(p) / 65536)) @ v).transpose(1, 2)
    wanted = [plain.detach(), *torch.autograd.grad((plain * weight).sum(), tensors)]
    return [*(apart(f, w) for f, w in zip(found, wanted, strict=True)), float(keep.double().mean())]


def dropout_masks() -> list[float]:
    """Shares of weights on which masks agree: of one seed twice, of one seed and the other backends, of two seeds, of two
    heads and of two rows of a batch."""
    shape = (2, 2, T, T)
    first, again, other = (dropped(seed, shape, 0.5) for seed in (1, 1, 2))
    torch.manual_seed(1)
    by_seed = DropoutMask(int(torch.randint(2**62, (1,))), levels(0.5)).weights(shape)  # what the other backends drop
    pairs = [(first, again), (first, by_seed), (first, other), (first[:, 0], first[:, 1]), (first[0], first[1])]
    return [float((a == b).double().mean()) for a, b in pairs]


# -- what must not happen ----------------------------------------------------------------------------------------------


def poisoned() -> dict[str, bool]:
    """NaN and infinite keys, values and padded queries reach, forward and backward, only those who see them."""
    torch.manual_seed(0)
    given = [torch.randn(2, T, 2, 16) for _ in range(3)]
    clean = [x.clone() for x in given]
    given[1][0, 30, 1], given[2][1, 35, 0], given[2][0, 29] = torch.nan, torch.inf, torch.nan
    tensors = [x.requires_grad_() for x in given]
    pattern = causal() & window(4)
    out, right = (attend(*x, pattern=pattern, backend="flash") for x in (tensors, clean))
    sees = torch.zeros(2, T, 2, dtype=torch.bool)
    sees[0, 30:34, 1] = sees[1, 35:39, 0] = sees[0, 29:33] = True
    bad = ~out.isfinite().all(-1)
    grads = torch.autograd.grad(out[~sees].sum(), tensors)
    layout = Layout.from_lengths([T, 21])
    given[0].data[1, 21:] = torch.nan
    padded = [x.detach()[1:].clone().requires_grad_() for x in (given[0], *clean[1:])]
    wide = attend(*padded, pattern=causal(), layout=layout.select(torch.tensor([1])), backend="flash")
    return {
        "those who see are NaN": bool(bad[sees].all()),
        "the others are right": bool(torch.equal(bad, sees) and torch.allclose(out[~sees], right[~sees])),
        "gradients of keys unseen are finite": bool(grads[1][:, :26].isfinite().all()),
        "padded queries leave no trace": all(bool(g.isfinite().all()) for g in torch.autograd.grad(wide.sum(), padded)),
    }


def repeats() -> bool:
    """The same bits twice, with PyTorch's deterministic algorithms asked for."""
    torch.use_deterministic_algorithms(True)
    try:
        case = CASES["t5 causal"](torch.float32)
        given = [torch.randn(2, T, n, 16) for n in (HEADS, 2, 2)]
        weights = torch.randn(2, T, HEADS, 16), torch.randn(2, HEADS, T)
        runs = [results("flash", given, case, weights) for _ in range(2)]
    finally:
        torch.use_deterministic_algorithms(False)
    return all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def strided_inputs(kind: str) -> list[float]:
    """As `agreement`, from slices of one tensor, transposed heads, a broadcast batch, and rows with gaps."""
    torch.manual_seed(0)
    joint = torch.randn(2, T, 3, HEADS, 16)
    first = list(joint.unbind(2))
    second = [torch.randn(2, HEADS, T, 16).transpose(1, 2), *(torch.randn(1, T, 2, 16).expand(2, -1, -1, -1),) * 2]
    third = [torch.randn(2, T, HEADS, 32)[..., ::2], torch.randn(16, 2, T, 2).permute(1, 2, 3, 0), joint[:, :, 0, :2]]
    weights = torch.randn(2, T, HEADS, 16, dtype=torch.float64), torch.randn(2, HEADS, T, dtype=torch.float64)
    given = {"slices": first, "transposed": second, "gaps": third}[kind]
    found = results("flash", given, {}, weights)
    wanted = results("reference", [x.double() for x in given], {}, weights)
    return [apart(f, w) for f, w in zip(found, wanted, strict=True)]


def nothing() -> dict[str, bool]:
    """Requests without queries, keys or rows."""
    found = {}
    for b, t, s in ((0, 3, 3), (2, 0, 3), (2, 3, 0)):
        given = [torch.randn(b, n, 2, 16, requires_grad=True) for n in (t, s, s)]
        places = {"layout": Layout.full(t), "kv_layout": Layout.full(s)}
        out, lse = attend(*given, return_lse=True, backend="flash", **places)
        grads = torch.autograd.grad(out.sum() + lse.nan_to_num(neginf=0.0).sum(), given)
        zero = all(bool((x == 0).all()) for x in (out, *grads))
        found[f"{b} rows, {t} queries, {s} keys"] = (
            zero and out.shape == (b, t, 2, 16) and bool((lse == -torch.inf).all())
        )
    return found


def refusal(changes: Options) -> str:
    """The reason that `attend` gives for one change to a request that can be served."""
    made = {"dtype": torch.float32, "d": 16} | changes
    q = torch.randn(1, 4, 2, made["d"]).to(made["dtype"])
    try:
        attend(q, q, q, backend="flash")
    except ValueError as error:
        return str(error)
    return ""


def compiled(case: str) -> list[float]:
    """As `agreement`, of the operator in one compiled graph from the operator as it is."""
    torch.manual_seed(0)
    given = [torch.randn(2, T, n, 16) for n in (HEADS, 2, 2)]
    weight, options = torch.randn(2, T, HEADS, 16), CASES[case](torch.float32)

    def call(*tensors: Tensor) -> Tensor:
        return attend(*tensors, backend="flash", **options)

    runs = []
    for f in (torch.compile(call, backend="aot_eager", fullgraph=True), call):
        tensors = [x.clone().requires_grad_() for x in given]
        out = f(*tensors)
        runs.append([out, *torch.autograd.grad((out * weight).sum(), tensors)])
    return [apart(f, w) for f, w in zip(*runs, strict=True)]


# -- decoding ----------------------------------------------------------------------------------------------------------


def paged(tokens: int, splits: int, dtype: torch.dtype, options: Options) -> list[float]:
    """Distances of output and log-sum-exp from attention over the gathered keys. Slots that no row has hold NaN."""
    torch.manual_seed(0)
    lengths, page, width, n_kv_heads = torch.tensor([37, 6, tokens, 90]), 8, 24, 2
    pages = -(-90 // page)
    table = torch.randperm(4 * pages).view(4, pages)
    pool_k, pool_v = (torch.full((4 * pages, page, n_kv_heads, n), torch.nan) for n in (width, 16))
    q = torch.randn(4, tokens, HEADS, width).to(dtype)
    wanted: tuple[list[Tensor], list[Tensor]] = [], []
    window_size = options.get("window")
    pattern = causal() if window_size is None else causal() & window(window_size)
    for row, length in enumerate(lengths.tolist()):
        k, v = torch.randn(length, n_kv_heads, width), torch.randn(length, n_kv_heads, 16)
        for pool, x in ((pool_k, k), (pool_v, v)):
            for n in range(length):
                pool[table[row, n // page], n % page] = x[n].to(dtype)
        out, lse = attend(
            *(x.to(dtype).double()[None] for x in (q[row], k, v)),
            pattern=pattern,
            layout=Layout.full(tokens, start=length - tokens),
            kv_layout=Layout.full(length),
            softcap=options.get("softcap"),
            return_lse=True,
            backend="reference",
        )
        wanted[0].append(out)
        wanted[1].append(lse)
    table[1, 1:] = 10**6  # pages that row 1 has no use for
    found = flash.paged(
        q, pool_k.to(dtype), pool_v.to(dtype), table, lengths, splits=splits, return_lse=True, **options
    )
    return [apart(f, torch.cat(w)) for f, w in zip(found, wanted, strict=True)]
