"""FlexAttention: our rules, biases and block maps mean to it what they mean to the reference, compiled or not."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.core.layout import Layout, View
from qkv.nn.attention.attend import attend
from qkv.nn.kernels import flex, pairwise
from qkv.nn.kernels.backends import choose
from qkv.nn.kernels.block_map import block_map
from qkv.nn.kernels.plan import Plan, allowed_mask
from qkv.nn.kernels.request import Request
from qkv.nn.patterns.basic import Pattern, causal, documents, full, global_tokens, prefix, sinks, window
from qkv.nn.patterns.bigbird import BigBird
from qkv.nn.patterns.gallery import GALLERY
from qkv.nn.positions.base import Bias, Position, Widths
from qkv.nn.positions.bias import ALiBi, T5Buckets

T, HEADS = 150, 4  # more than one block of 128
compiler = pytest.mark.skipif(
    flex._no_compiler("cpu") is not None or "AVX" not in torch.backends.cpu.get_cpu_capability(),
    reason="FlexAttention's CPU kernels need a C++ compiler, and x86 with AVX2",
)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's plain mathematics of the same rules, which takes no compiler and has a log-sum-exp on a CPU."""
    module = importlib.import_module("torch.nn.attention.flex_attention")
    monkeypatch.setattr(module, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    monkeypatch.setattr(flex, "_compiled", lambda key: module.flex_attention)
    monkeypatch.setattr(flex, "_no_compiler", lambda device: None)
    monkeypatch.setattr(flex, "_refuses_on_a_cpu", lambda request: None)


def grid(n: int) -> Layout:
    """Positions with three axes: number, row, column."""
    number = torch.arange(n)
    return Layout(torch.stack([number, number // 10, number % 10], -1)[None], padding="none")


class Near(Pattern, kind="near-flex-test"):
    """Within one row and one column of each other."""

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        row, column = (q.axes[..., i] - k.axes[..., i] for i in (1, 2))
        return (row.abs() <= 1) & (column.abs() <= 1)


class Gaussian(Position, kind="gaussian-flex-test"):
    """A bias from outside, in no form for one pair: −distance² · rate of each head."""

    def bias(self, tensors: tuple[Tensor, ...], q: Any, k: Any) -> Tensor:
        return -tensors[0][:, None, None] * (q.position - k.position).square().to(tensors[0].dtype).unsqueeze(-3)


def hidden_rows() -> Tensor:
    bias = torch.randn(2, 1, T, T)
    bias[:, :, 3:9] = -torch.inf
    bias[:, :, 20:, 30:60] = -torch.inf
    return bias


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"pattern": causal()},
    "sinks": {"pattern": causal() & window(5) | causal() & sinks(2)},
    "nothing to see": {"pattern": causal() & ~window(40)},
    "none at all": {"pattern": ~full()},
    "prefix": {
        "pattern": causal() | prefix(),
        "layout": Layout.full(T).with_roles((torch.arange(T) < 30).long()[None] * 4),
    },
    "global": {"pattern": window(9) | global_tokens(3)},
    "bigbird": {"pattern": BigBird(size=16, random=1, seed=3, blocks=10, heads=HEADS)},
    "axes": {"pattern": Near(), "layout": grid(T)},
    "left": {"pattern": causal(), "layout": Layout.from_lengths([70, T], side="left")},
    "mixed": {"pattern": causal(), "layout": Layout.from_mask(torch.rand(2, T) < 0.6)},
    "packed": {"pattern": causal(), "layout": Layout.packed([[100, 50], [30, 80, 20]], T)},
    "documents": {"pattern": ~documents() | causal(), "layout": Layout.packed([[100, 50]], T)},
    "capped": {"softcap": 1.5, "pattern": causal()},
    "alibi": {"bias": ALiBi().module(Widths(32, HEADS, 8, None)).bias(), "pattern": causal()},
    "rounded alibi": {"bias": ALiBi(precision="bfloat16").module(Widths(32, HEADS, 8, None)).bias()},
    "t5": {"bias": Bias(T5Buckets(), (torch.randn(32, HEADS),)), "layout": Layout.from_lengths([70, T], side="left")},
    "capped t5": {"bias": Bias(T5Buckets(), (torch.randn(32, HEADS),)), "softcap": 2.0},
    "from outside": {"bias": Bias(Gaussian(), (torch.rand(HEADS) / 100,))},
    "dense": {"bias": torch.randn(2, HEADS, T, T)},
    "dense rows": {"bias": torch.randn(HEADS, T, 1)},
    "one number": {"bias": torch.tensor(0.5), "softcap": 3.0},
    "hidden rows": {"bias": hidden_rows(), "pattern": causal()},
    "late": {"pattern": causal(), "layout": Layout.full(T, start=40), "kv_layout": Layout.full(T, start=30)},
}


def inputs(t: int = T, s: int = T, n_kv_heads: int = 2, d: int = 8, e: int = 5) -> list[Tensor]:
    return [torch.randn(2, t, HEADS, d), torch.randn(2, s, n_kv_heads, d), torch.randn(2, s, n_kv_heads, e)]


def exact(tensors: list[Tensor], options: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The reference in float64."""
    bias = options.get("bias")
    if isinstance(bias, Tensor):
        options = {**options, "bias": bias.double()}
    out, lse = attend(*(x.double() for x in tensors), return_lse=True, backend="reference", **options)
    return out.float(), lse.float()


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("case", CASES)
def test_equals_the_reference(case: str) -> None:
    tensors = inputs()
    made = attend(*tensors, return_lse=True, backend="flex", **CASES[case])
    torch.testing.assert_close(made, exact(tensors, CASES[case]), atol=1e-5, rtol=1e-5)


# Random blocks reduce over a stack of draws, which is more than arithmetic on one pair.
@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("spelling", [e.spelling for e in GALLERY if "random_blocks" not in e.spelling])
def test_every_pattern_of_the_gallery(spelling: str) -> None:
    (pattern,) = (e.pattern.over(T, HEADS) for e in GALLERY if e.spelling == spelling)
    tensors = inputs()
    made = attend(*tensors, return_lse=True, backend="flex", pattern=pattern)
    torch.testing.assert_close(made, exact(tensors, {"pattern": pattern}), atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("uncompiled")
def test_no_tokens_give_no_output() -> None:
    q, k, v = inputs()
    out, lse = attend(q, k[:, :0], v[:, :0], backend="flex", return_lse=True)
    assert out.shape == (2, T, HEADS, 5) and out.count_nonzero() == 0 and (lse == -torch.inf).all()


def request_of(tensors: list[Tensor] | None = None, **options: Any) -> Request:
    q, k, v = tensors or inputs()
    given: dict[str, Any] = {
        "pattern": causal(), "layout": Layout.full(q.shape[1]), "kv_layout": Layout.full(k.shape[1]), "bias": None,
        "scale": 0.3, "dropout": 0.0, "softcap": None, "return_lse": False, "plan": Plan(),
    }  # fmt: skip
    return Request(q, k, v, **{**given, **options})


@pytest.mark.parametrize("case", ["causal", "sinks", "left", "packed", "bigbird", "axes"])
def test_the_block_mask_is_the_block_map(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it lists covers what is allowed, and what it lists as full is allowed altogether."""
    options = CASES[case]
    layout = options.get("layout", Layout.full(T))
    monkeypatch.setattr(flex, "_BLOCK", 16)
    request = request_of(pattern=options["pattern"], layout=layout, kv_layout=layout)
    made = flex._block_mask(request)
    rows = -(-T // 16)
    blocks = block_map(options["pattern"], layout, layout, 16, 16)
    assert made.to_dense()[0, 0].bool().tolist() == blocks.maybe.tolist()
    assert made.kv_num_blocks.sum() + made.full_kv_num_blocks.sum() < rows**2 or case in ("axes", "left", "packed")
    mask = allowed_mask(options["pattern"], layout, layout, HEADS).expand(layout.shape[0], HEADS, T, T)
    for i in range(rows):
        full_ones = made.full_kv_indices[0, 0, i, : int(made.full_kv_num_blocks[0, 0, i])].tolist()
        assert full_ones == [j for j in range(rows) if blocks.surely[i][j]]
        assert all(mask[:, :, i * 16 : i * 16 + 16, j * 16 : j * 16 + 16].all() for j in full_ones)
    assert flex._block_mask(request) is made, "made once per pass"


def test_the_block_mask_of_a_long_text_is_small() -> None:
    """65536 tokens: a mask of all pairs would be 4 GiB."""
    q, k = torch.empty(1, 65536, 1, 8), torch.empty(1, 65536, 1, 8)
    made = flex._block_mask(request_of([q, k, k], pattern=causal() & window(256)))
    assert made.kv_indices.shape == (1, 1, 512, 512)
    assert int(made.kv_num_blocks.max()) == 2 and int(made.full_kv_num_blocks.max()) == 1


class Sorted(Pattern, kind="sorted-flex-test"):
    """Looks at a whole row at once."""

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return k.position.cumsum(-1) <= q.position


class Asking(Pattern, kind="asking-flex-test"):
    """Asks for values."""

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return k.position <= q.position if bool((q.position > 3).all()) else k.position < 2


@pytest.mark.parametrize(
    "options, said",
    [
        ({"dropout": 0.1}, "no dropout"),
        ({"return_lse": True}, "does not return the log-sum-exp"),
        ({"bias": torch.zeros(T, T, requires_grad=True)}, "forward pass only, and these inputs need gradients"),
        ({"bias": Bias(T5Buckets(), (torch.zeros(32, HEADS, requires_grad=True),))}, "forward pass only"),
        ({"tensors": [x.double() for x in inputs()]}, "fp32, bf16 and fp16, not in torch.float64"),
        ({"tensors": [x.requires_grad_() for x in inputs()]}, "forward pass only, and these inputs need gradients"),
        ({"tensors": [x.to("meta") for x in inputs()]}, "runs on CPUs and CUDA devices, not on meta"),
        ({"pattern": causal() & Sorted()}, "more than arithmetic on one pair: it calls aten.cumsum"),
        ({"pattern": Asking()}, "can't be traced for one pair"),
    ],
)
@compiler
def test_refusals_name_the_reason(options: dict[str, Any], said: str) -> None:
    options = dict(options)
    request = request_of(options.pop("tensors", None), **options)
    with pytest.raises(ValueError, match=f"backend 'flex' can't serve this request: .*{said}"):
        choose(request, "flex")


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    flex._no_compiler.cache_clear()
    try:
        assert "there is no no-such-compiler" in str(flex._no_compiler("cpu"))
    finally:
        flex._no_compiler.cache_clear()


@compiler
def test_auto_never_takes_it_on_a_cpu() -> None:
    for options in ({}, {"softcap": 2.0}, {"pattern": causal() & window(8)}):
        assert choose(request_of(**options)) != "flex"
        assert flex.refuses(request_of(**options)) is None, "though it could"


@compiler
def test_leaves_are_served_where_no_gradient_is_recorded() -> None:
    request = request_of([x.requires_grad_() for x in inputs()])
    assert flex.refuses(request) is not None
    with torch.no_grad():
        assert flex.refuses(request) is None


def test_a_rule_is_traced_once_and_its_tables_are_kept() -> None:
    pattern = CASES["bigbird"]["pattern"]
    made = pairwise.rule(pattern, 1, torch.device("cpu"))
    assert made is pairwise.rule(pattern.replace(), 1, torch.device("cpu"))
    assert [table.shape for table in made.tables] == [(HEADS, 10, 10)]
    assert pairwise.rule(causal(), 1, torch.device("cpu")).tables == ()


def test_each_rule_and_shape_has_its_own_kernel() -> None:
    keys = [flex._key(request_of(**options)) for options in ({}, {}, {"softcap": 2.0}, {"pattern": full()})]
    keys.append(flex._key(request_of(inputs(t=T + 1), layout=Layout.full(T + 1))))
    assert len(set(keys)) == 4
    first, again, other = (flex._compiled(key) for key in (keys[0], keys[1], keys[2]))
    assert first is again and first is not other
    assert first._torchdynamo_orig_callable.__code__ is not other._torchdynamo_orig_callable.__code__


@compiler
@pytest.mark.slow
def test_what_the_documents_show_runs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "attention.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^## FlexAttention\n.*?^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, "attention.md", "exec"), names)
    wanted = exact([names[name] for name in "qkv"], {"pattern": causal() & window(64)})[0]
    torch.testing.assert_close(names["near"], wanted, atol=2e-5, rtol=2e-5)


@compiler
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_compiled_equals_the_reference(case: str) -> None:
    tensors = inputs()
    made = attend(*tensors, backend="flex", **CASES[case])
    torch.testing.assert_close(made, exact(tensors, CASES[case])[0], atol=2e-5, rtol=2e-5)


@compiler
@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_compiled_in_half_precision(dtype: torch.dtype) -> None:
    tensors = [x.to(dtype) for x in inputs(d=32, e=32)]
    made, plain = (attend(*tensors, pattern=causal() & window(50), backend=b) for b in ("flex", "reference"))
    wanted = exact(tensors, {"pattern": causal() & window(50)})[0]
    assert made.dtype == dtype
    assert (made - wanted).norm() <= 2 * (plain - wanted).norm()


@compiler
@pytest.mark.slow
def test_compiled_one_query_after_many_keys() -> None:
    tensors = inputs(t=1, s=300)
    for start in (299, 40):
        options = {"pattern": causal(), "layout": Layout.full(1, start=start), "kv_layout": Layout.full(300)}
        made = attend(*tensors, backend="flex", **options)
        torch.testing.assert_close(made, exact(tensors, options)[0], atol=2e-5, rtol=2e-5)


@compiler
@pytest.mark.slow
def test_new_tensors_of_one_shape_are_not_compiled_again() -> None:
    options = {"pattern": causal(), "layout": CASES["left"]["layout"]}
    attend(*inputs(), backend="flex", **options)
    with torch.compiler.set_stance("fail_on_recompile"):
        for lengths in ([70, T], [20, T]):
            layout = Layout.from_lengths(lengths, side="left")
            tensors = inputs()
            made = attend(*tensors, backend="flex", **{**options, "layout": layout})
            torch.testing.assert_close(made, exact(tensors, {**options, "layout": layout})[0], atol=2e-5, rtol=2e-5)
