"""Multi-head attention against PyTorch's own and against its equation; widths, cost and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import qkv
from qkv.core.layout import Layout
from qkv.nn.attention.bigbird import BlockSparseAttention
from qkv.nn.attention.linear import LinearAttention
from qkv.nn.attention.longformer import GlobalAttention
from qkv.nn.attention.mixer import Mixer, Pass
from qkv.nn.attention.multi_head import Attention, MultiHeadAttention
from qkv.nn.layers.linear import Linear
from qkv.nn.layers.norm import RMSNorm
from qkv.nn.patterns.basic import causal, full, sinks, window
from qkv.nn.positions.base import PositionModule, Widths

M = 12


def made(cross: bool = False, **options: Any) -> tuple[MultiHeadAttention, Attention]:
    spec = Attention.from_dict({"n_heads": 4, **options})
    module = spec.module(M, cross=cross).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    assert isinstance(module, MultiHeadAttention)
    return module, spec


def run_over(length: int, memory: Tensor | None = None) -> Pass:
    run = Pass.over(Layout.full(length), PositionModule())
    if memory is not None:
        run.memory, run.memory_layout = memory, Layout.full(memory.shape[1])
    return run


@pytest.mark.parametrize("cross", [False, True])
def test_it_is_pytorchs_multi_head_attention(cross: bool) -> None:
    module, _ = made(cross)
    peer = nn.MultiheadAttention(M, 4, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        peer.in_proj_weight.copy_(torch.cat([module.q.weight, module.k.weight, module.v.weight]))
        peer.in_proj_bias.copy_(torch.cat([module.q.bias, module.k.bias, module.v.bias]))  # type: ignore[list-item]
        peer.out_proj.load_state_dict(module.out.state_dict())
    x = torch.randn(2, 5, M, dtype=torch.float64)
    memory = torch.randn(2, 7, M, dtype=torch.float64) if cross else x
    expected = peer(x, memory, memory, need_weights=False)[0]
    torch.testing.assert_close(module(x, run_over(5, memory)), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"n_kv_heads": 2},
        {"n_kv_heads": 1, "bias": False},
        {"d_head": 5, "d_value": 7, "bias": False, "out_bias": True},
        {"scale": 1.0, "softcap": 2.0, "pattern": "causal"},
        {"qk_norm": "rmsnorm", "n_kv_heads": 2, "pattern": {"kind": "window", "size": 2}},
    ],
)
def test_outputs_match_the_equation(options: dict[str, Any]) -> None:
    module, spec = made(**options)
    x = torch.randn(2, 5, M, dtype=torch.float64)
    h, kv, d, e = spec.widths(M)
    q, k, v = (layer(x).unflatten(-1, (-1, w)) for layer, w in ((module.q, d), (module.k, d), (module.v, e)))
    assert (q.shape[2], k.shape[2], v.shape[3]) == (h, kv, e)
    q, k = module.q_norm(q), module.k_norm(k)
    scores = torch.einsum("bthd,bshd->bhts", q, k.repeat_interleave(h // kv, 2)) * (spec.scale or d**-0.5)
    if spec.softcap:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    weights = scores.masked_fill(~spec.pattern.mask(5), float("-inf")).softmax(-1)
    heads = torch.einsum("bhts,bshe->bthe", weights, v.repeat_interleave(h // kv, 2))
    torch.testing.assert_close(module(x, run_over(5)), module.out(heads.flatten(-2)))
    assert spec.cost(M).parameters == sum(p.numel() for p in module.parameters())


def test_multi_query_shares_one_pair_of_key_and_value() -> None:
    module, spec = made(n_kv_heads=1)
    assert module.k.weight.shape == module.v.weight.shape == (3, M) and spec.widths(M) == (4, 1, 3, 3)


def test_dropout_is_for_training_only() -> None:
    module, _ = made(dropout=0.5)
    x = torch.randn(1, 5, M, dtype=torch.float64)
    assert not torch.equal(module(x, run_over(5)), module(x, run_over(5)))
    module.eval()
    assert torch.equal(module(x, run_over(5)), module(x, run_over(5)))


def test_cross_attention_takes_no_position_and_reads_memory_only() -> None:
    module, _ = made(cross=True)
    x, memory = torch.randn(1, 3, M, dtype=torch.float64), torch.randn(1, 4, M, dtype=torch.float64)
    out = module(x, run_over(3, memory))
    changed = x.clone()
    changed[:, 2] += 1
    torch.testing.assert_close(module(changed, run_over(3, memory))[:, :2], out[:, :2])
    torch.testing.assert_close(module(x, run_over(3, memory.flip(1))), out)


@pytest.mark.parametrize(
    "pattern, size",
    [
        (causal(), None),
        (causal() & window(5), 5),
        (causal() & window(5) & window(3), 3),
        (causal() & window(5) | sinks(2), None),  # the sinks lie outside any ring
        (full(), None),
        (window(5), None),
    ],
)
def test_what_a_decoding_step_can_need(pattern: Any, size: int | None) -> None:
    assert Attention(n_heads=1, pattern=pattern).remembers() == size


def test_cost_is_projections_and_pairs() -> None:
    spec = Attention(n_heads=4, n_kv_heads=2, d_value=5, qk_norm=RMSNorm())
    h, k, d, e = spec.widths(M)
    projections = M * (h * d + k * d + k * e) + h * e * M
    assert spec.cost(M, tokens=7, pairs=20).flops == 2 * projections * 7 + 2 * 20 * h * (d + e)
    crossing = spec.cost(M, tokens=7, pairs=21, memory=3)
    assert crossing.flops == 2 * 7 * (M * h * d + h * e * M) + 2 * 3 * M * k * (d + e) + 2 * 21 * h * (d + e)


@pytest.mark.parametrize(
    "given, said",
    [
        ({"n_heads": 4, "n_kv_heads": 3}, "n_kv_heads=3 does not divide n_heads=4; allowed: 1, 2, 4"),
        ({"n_heads": 0}, "n_heads: input should be greater than 0, not 0"),
        ({"n_heads": 2, "dropout": -0.5}, "dropout: input should be greater than or equal to 0, not -0.5"),
        ({"n_heads": 2, "softcap": 0}, "softcap: input should be greater than 0"),
        ({"n_heads": 2, "n_head": 3}, "n_head: no such field; it is n_heads here"),
        ({"n_heads": 2, "pattern": "windo"}, "no pattern 'windo'; did you mean 'window'"),
    ],
)
def test_wrong_values_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Attention.from_dict(given)


def test_heads_have_to_divide_the_width() -> None:
    with pytest.raises(
        ValueError, match="n_heads=5 does not divide d_model=12; allowed: 1, 2, 3, 4, 6, 12; or give d_"
    ):
        Attention(n_heads=5).widths(12)
    assert Attention(n_heads=5, d_head=7).widths(12) == (5, 5, 7, 7)


# -- mixers from outside -------------------------------------------------------------------------------------------------


class Means(Mixer, kind="means-attention-test"):
    """The mean of all real tokens so far, of a token's own segment, through a matrix. It says nothing of states."""

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.out = Linear(d_model, d_model)

            def forward(self, x: Tensor, run: Pass, state: object = None) -> Tensor:
                assert state is None
                seen = causal().allowed(run.layout.queries(), run.layout.keys()) & run.layout.valid[:, None, :]
                weight = seen.to(x.dtype) / seen.sum(-1, keepdim=True).clamp(min=1)
                return self.out(weight @ x)

        return Net()


def of_means(position: str = "learned") -> Any:
    sizes = {"vocab_size": 23, "d_model": 16, "n_heads": 2, "n_layers": 3, "max_positions": 32}
    spec = qkv.preset("gpt2", position=position, **sizes)
    return qkv.build(spec.replace({f"decoder.blocks.{i}.attention": Means() for i in (0, 2)}), seed=1).eval()


@torch.no_grad()
def test_a_mixer_without_a_state_decodes_as_it_reads_the_whole() -> None:
    model, ids = of_means(), torch.randint(23, (3, 9), generator=torch.Generator().manual_seed(0))
    layout = Layout.from_lengths([9, 6, 7], side="left")
    cache, whole = model.start(3), model(ids, layout=layout)
    got = [model.step(ids[:, :4], cache, layout.slice(0, 4), all_positions=True)]
    got += [model.step(ids[:, t : t + 1], cache, all_positions=True) for t in range(4, 9)]
    torch.testing.assert_close(torch.cat(got, 1)[layout.valid], whole[layout.valid], atol=1e-5, rtol=1e-5)
    assert cache.parts["inputs"] == 2 * 3 * 9 * 16 * 4


@torch.no_grad()
def test_what_it_read_is_reordered_taken_back_and_saved(tmp_path: Path) -> None:
    model, ids = of_means(), torch.randint(23, (2, 8), generator=torch.Generator().manual_seed(0))
    cache = model.start(2)
    model.step(ids[:, :6], cache)
    cache.reorder(torch.tensor([1, 0]))
    cache.rewind(2)
    cache.save(tmp_path / "cache.safetensors")
    again = model.start(2)
    again.load(tmp_path / "cache.safetensors")
    for each in (cache, again):
        out = model.step(ids.flip(0)[:, 4:8], each)
        torch.testing.assert_close(out, model(ids.flip(0))[:, -1], atol=1e-5, rtol=1e-5)


def test_a_bias_is_refused_where_a_mixer_would_not_add_it() -> None:
    for position in ("alibi", "t5"):
        with pytest.raises(
            ValueError, match="is added to the scores of token pairs, which means-attention-test does not have"
        ):
            of_means(position)
    spec = qkv.preset("gpt2", vocab_size=23, d_model=16, n_heads=2, n_layers=2, position="alibi")
    with pytest.raises(ValueError, match="linear-attention does not have"):
        qkv.build(spec.replace({"decoder.blocks.1.attention": LinearAttention(n_heads=2, pattern=causal())}))


def test_a_bias_of_a_module_made_by_hand_is_seen_too() -> None:
    class ByHand(qkv.ALiBi, kind="by-hand-attention-test"):
        def module(self, widths: Widths) -> PositionModule:
            made = PositionModule()
            made.bias = lambda device=None: qkv.ALiBi().module(widths).bias(device)
            return made

    spec = qkv.preset("gpt2", vocab_size=23, d_model=16, n_heads=2, n_layers=1)
    changes = {"decoder.position": ByHand(), "decoder.blocks.*.attention": Means()}
    with pytest.raises(ValueError, match="is added to the scores of token pairs"):
        qkv.build(spec.replace(changes))


def test_turning_is_refused_where_nothing_is_turned() -> None:
    of_means("rotary")  # the block between them has heads
    spec = qkv.preset("gpt2", vocab_size=23, d_model=16, n_heads=2, n_layers=2, position="rotary")
    with pytest.raises(ValueError, match=r"rotates heads, and no block of this stack has any"):
        qkv.build(spec.replace({"decoder.blocks.*.attention": Means()}))


def test_crossing_by_a_mixer_that_keeps_nothing_of_the_source_is_not_stepped_through() -> None:
    spec = qkv.preset("transformer", vocab_size=23, d_model=16, n_heads=2, n_layers=1, d_ff=8)
    model = qkv.build(spec.replace({"decoder.blocks.*.cross": Means()})).eval()
    with pytest.raises(ValueError, match=r"decoder.blocks.0.cross is a Net, which keeps no keys and values"):
        model.start(source=torch.ones(1, 3, dtype=torch.int64))


class Uniform(Attention, kind="uniform-attention-test"):
    """A kind built on attention with its own module, which heeds neither a state nor what positions add."""

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        class Net(nn.Module):
            def forward(self, x: Tensor, run: Pass, state: object = None) -> Tensor:
                return x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]

        return Net()


def test_a_kind_with_its_own_module_inherits_no_promise_of_attentions() -> None:
    base = qkv.preset("gpt2", vocab_size=23, d_model=16, n_heads=2, n_layers=2, max_positions=32)
    own = {"decoder.blocks.*.attention": Uniform(n_heads=2)}
    with pytest.raises(ValueError, match="adds_bias = True"):
        qkv.build(base.replace({"decoder.position": {"kind": "alibi"}, **own}))
    model, ids = qkv.build(base.replace(own)).eval(), torch.randint(23, (2, 7))
    cache = model.start(2)
    with torch.no_grad():
        steps = torch.stack([model.step(ids[:, t : t + 1], cache) for t in range(7)], 1)
        torch.testing.assert_close(steps, model(ids), atol=1e-5, rtol=1e-5)


def test_a_kind_that_keeps_attentions_state_says_so() -> None:
    class Same(Attention, kind="same-attention-test"):
        adds_bias, state = True, Attention.state

        def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
            return MultiHeadAttention(self, d_model, cross, name)

    assert Same.adds_bias and Same(n_heads=2).keeps_keys and not Uniform.adds_bias
    assert BlockSparseAttention.adds_bias and GlobalAttention.adds_bias
