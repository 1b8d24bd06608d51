"""Mixture of experts: the Hub's numbers, a plain loop over tokens, balance, capacity, and what is counted."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.core.extras import Extra, Extras
from qkv.core.layout import Layout
from qkv.nn.layers.feedforward import ACTIVATIONS, FeedForward, FeedForwardLayer
from qkv.nn.layers.moe import Mixture, MixtureOfExperts
from qkv.nn.layers.moe_dispatch import dispatch

GOLDEN = json.loads(Path(__file__).with_name("moe_golden.json").read_text(encoding="utf-8"))
M, TOKENS = 6, 11

SHARED = FeedForward(d_ff=7, gated=True, activation="silu", bias=False)
HUB: dict[str, dict[str, Any]] = {
    "mixtral": {"n_experts": 4, "d_ff": 5, "top_k": 2},
    "mixtral top 1": {"n_experts": 4, "d_ff": 5, "top_k": 1, "renormalize": True},
    "qwen2-moe": {"n_experts": 4, "d_ff": 5, "top_k": 2, "renormalize": False, "shared_gate": True, "shared": SHARED},
    "qwen3-moe": {"n_experts": 16, "d_ff": 3, "top_k": 8},
    "deepseek-v3": {
        "n_experts": 8,
        "d_ff": 5,
        "top_k": 3,
        "score": "sigmoid",
        "scale": 2.5,
        "bias_rate": 0.001,
        "shared": SHARED.replace(d_ff=5),
    },
}
NAMES = {
    "gate.weight": "router.weight",
    "gate.e_score_correction_bias": "router.bias",
    "experts.down_proj": "down.weight",
    "shared_expert_gate.weight": "shared_gate.weight",
    **{f"shared_expert{s}.{n}_proj.weight": f"shared.{n}.weight" for s in ("", "s") for n in ("gate", "up", "down")},
}


def wave(*shape: int, seed: int) -> Tensor:
    """The same numbers wherever they are made: `make_moe_golden.py` has this function too."""
    n = torch.Size(shape).numel()
    return torch.sin(torch.arange(n, dtype=torch.float64) ** 2 * 0.37 + seed * 1.7 + 0.3).view(shape)


def made(**options: Any) -> Mixture:
    spec = MixtureOfExperts(**{"n_experts": 5, "d_ff": 4, **options})
    module = spec.module(M).double()
    for i, parameter in enumerate(module.parameters()):
        parameter.data.copy_(wave(*parameter.shape, seed=i))
    assert spec.cost(M).parameters == sum(p.numel() for p in module.parameters())
    return module  # type: ignore[return-value]


def passing(layout: Layout) -> Any:
    return SimpleNamespace(layout=layout, extras=Extras())


def in_training(module: Mixture, x: Tensor, layout: Layout | None = None) -> tuple[Tensor, dict[str, Extra]]:
    run = passing(layout or Layout.full(x.shape[1]))
    return module.train()(x, run), run.extras.terms()


# -- the Hub's numbers ----------------------------------------------------------------------------------------------


def as_ours(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Names translated, and the Hub's rows for gate and up, which it holds in one tensor, taken apart."""
    found = {NAMES[name]: value for name, value in theirs.items() if name in NAMES}
    gate, up = theirs["experts.gate_up_proj"].chunk(2, 1)
    return {**found, "gate.weight": gate, "up.weight": up}


@pytest.mark.parametrize("name", HUB)
def test_blocks_are_those_of_the_hub(name: str) -> None:
    """Numbers of `bench/.envs/huggingface/bin/python tests/nn/layers/make_moe_golden.py`; its router is in fp32."""
    golden = GOLDEN["blocks"][name]
    theirs = {n: wave(*shape, seed=i) for i, (n, shape) in enumerate(golden["parameters"].items())}
    module = MixtureOfExperts.from_dict(
        {k: getattr(v, "to_dict", lambda v=v: v)() for k, v in HUB[name].items()}
    ).module(M)
    module.double().load_state_dict(as_ours(theirs))
    x = wave(1, TOKENS, M, seed=50).requires_grad_()
    out = module.eval()(x)
    (out * wave(*out.shape, seed=51)).sum().backward()
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(out.flatten().tolist(), golden["out"], **close)
    torch.testing.assert_close(x.grad.flatten().tolist(), golden["d_x"], **close)  # type: ignore[union-attr]
    gradients = as_ours({n: torch.tensor(g).view(golden["parameters"][n]) for n, g in golden["gradients"].items()})
    for n, p in module.named_parameters():
        torch.testing.assert_close(p.grad, gradients[n].double(), **close)


@pytest.mark.parametrize("case", GOLDEN["balance"], ids=str)
def test_the_balance_loss_is_that_of_the_hub(case: dict[str, Any]) -> None:
    """Of three layers together, padding aside."""
    spec = MixtureOfExperts(n_experts=4, d_ff=2, top_k=case["top_k"], balance="mixtral", balance_weight=0.5)
    extras = Extras()
    real = torch.arange(TOKENS) < 7 if case["masked"] else None
    for i in range(3):
        layer = spec.module(4).double()
        layer.router.weight.data.copy_(torch.eye(4))  # the scores are the input
        x = 2 * wave(TOKENS, 4, seed=60 + i)
        routed = layer.router(x)
        extras.add(layer, layer.record(routed, dispatch(routed.experts, 4, real), real))  # type: ignore[arg-type]
    balance = extras.terms()["balance"]
    assert balance.value.item() == pytest.approx(case["loss"], rel=1e-6)
    assert balance.loss.item() == pytest.approx(0.5 * case["loss"], rel=1e-6)  # type: ignore[union-attr]


# -- the equation ---------------------------------------------------------------------------------------------------

SCORES = [
    {"score": score, "top_k": k, "renormalize": again, "gated": gated}
    for score, again in (("softmax", True), ("softmax", False), ("top-k-softmax", None), ("sigmoid", True))
    for k, gated in ((1, True), (2, False), (5, True))
]


def by_token(module: Mixture, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """One token at a time, from the docstring."""
    spec, out = module.spec, torch.zeros_like(x)
    again = spec.top_k > 1 if spec.renormalize is None else spec.renormalize
    for t, row in enumerate(x):
        s = module.router.weight @ row
        p = s.sigmoid() if spec.score == "sigmoid" else s.softmax(0)
        top = (p if bias is None else p + bias).topk(spec.top_k).indices
        g = s[top].softmax(0) if spec.score == "top-k-softmax" else p[top]
        g = g / g.sum() if again and spec.score != "top-k-softmax" else g
        for gate, e in zip(g, top, strict=True):
            up, act = module.up.weight[e] @ row, ACTIVATIONS[spec.activation]
            hidden = act(up) if module.gate is None else act(module.gate.weight[e] @ row) * up
            out[t] += gate * spec.scale * (module.down.weight[e] @ hidden)
    return out


@pytest.mark.parametrize("options", SCORES, ids=str)
def test_the_equation_and_its_gradients(options: dict[str, Any]) -> None:
    module, x = made(**options, scale=1.5).eval(), wave(7, M, seed=9)
    results = []
    for f in (module, lambda rows: by_token(module, rows)):
        rows = x.clone().requires_grad_()
        out = f(rows)
        grads = torch.autograd.grad((out * wave(*out.shape, seed=10)).sum(), [rows, *module.parameters()])
        results.append([out, *grads])
    torch.testing.assert_close(results[0], results[1])


def test_a_bias_chooses_and_does_not_weigh() -> None:
    module, x = made(score="sigmoid", bias_rate=0.1).eval(), wave(7, M, seed=9)
    module.router.bias.copy_(torch.tensor([5.0, 0, 0, 5.0, 0]))  # type: ignore[union-attr]
    assert set(module.router(x).experts.flatten().tolist()) == {0, 3}
    torch.testing.assert_close(module(x), by_token(module, x, module.router.bias))


def test_shared_layers_serve_every_token() -> None:
    shared = FeedForward(d_ff=3, bias=False)
    module, x = made(shared=shared, shared_gate=True), wave(7, M, seed=9)
    gate = (x @ module.shared_gate.weight.T).sigmoid()  # type: ignore[union-attr]
    torch.testing.assert_close(module.eval()(x), by_token(module, x) + gate * module.shared(x))  # type: ignore[misc]


# -- padding, capacity, jitter ----------------------------------------------------------------------------------------


def test_padding_is_served_by_no_expert_and_counts_nowhere() -> None:
    x, module = wave(2, 6, M, seed=9), made(router_z=0.1)
    layout = Layout.from_lengths([6, 2], side="left")
    out, terms = in_training(module, x, layout)
    assert (out[1, :4] == 0).all() and (out[1, 4:] != 0).any()
    only = torch.cat([x[0], x[1, 4:]])[None]
    alone, wanted = in_training(module, only)
    torch.testing.assert_close(torch.cat([out[0], out[1, 4:]])[None], alone)
    torch.testing.assert_close(terms, wanted)


def test_capacity_drops_second_choices_first_and_only_in_training() -> None:
    module, x = made(capacity=1.0, top_k=2), wave(1, 10, M, seed=9)
    routed = module.router(x[0])
    limit = 4  # 1.0 · 20 choices / 5 experts
    firsts = torch.bincount(routed.experts[:, 0], minlength=5)
    assert firsts.max() <= limit < torch.bincount(routed.experts.flatten(), minlength=5).max(), (
        "so that something is dropped"
    )
    out, terms = in_training(module, x)
    kept = dispatch(routed.experts, 5, None, 1.0)
    assert terms["expert_dropped"].value.item() == pytest.approx(1 - kept.ends[-1].item() / 20) and kept.ends[-1] < 20
    assert kept.inverse[:10].max() < kept.ends[-1], "no first choice is dropped here"
    assert not torch.equal(out, module.eval()(x))
    whole = made(top_k=2).eval()
    whole.load_state_dict(module.state_dict())
    assert torch.equal(module(x), whole(x))
    torch.testing.assert_close(made(capacity=100.0).train()(x), whole(x))


def test_jitter_moves_the_router_in_training_only() -> None:
    module, x = made(jitter=0.5), wave(1, 10, M, seed=9)
    assert torch.equal(module.eval()(x), module(x))
    module.train()
    assert not torch.equal(module.router(x[0]).gates, module.router(x[0]).gates)


# -- balance ----------------------------------------------------------------------------------------------------------


def test_balance_is_least_where_all_experts_are_chosen_alike() -> None:
    for balance, even in (("switch", 1.0), ("gshard", 1.0), ("mixtral", 2.0)):
        module = made(n_experts=6, balance=balance, balance_weight=0.25, top_k=2)
        module.router.weight.data.copy_(1e-3 * torch.eye(6))
        spread_out = torch.eye(6)[None].double() + 0.5 * torch.eye(6).roll(1, 1)  # each first once, each second once
        value, loss = in_training(module, spread_out)[1]["balance"]
        assert value.item() == pytest.approx(even, rel=1e-3) and loss.item() == pytest.approx(0.25 * even, rel=1e-3)  # type: ignore[union-attr]
        module.router.weight.data.mul_(5000)
        value, _ = in_training(module, spread_out[:, :1].expand(1, 6, 6))[1]["balance"]
        assert value.item() > 2.5 * even


def crowd() -> Tensor:
    """Tokens much alike, which one expert draws more than the others."""
    return torch.randn(1, 64, M, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 2 * wave(M, seed=3)


def test_the_balance_loss_evens_the_load() -> None:
    module, x = made(n_experts=4, top_k=1), crowd()
    before = in_training(module, x)[1]["expert_load"].value
    step = torch.optim.Adam([module.router.weight], 0.05)
    for _ in range(60):
        step.zero_grad()
        in_training(module, x)[1]["balance"].loss.backward()  # type: ignore[union-attr]
        step.step()
    assert in_training(module, x)[1]["expert_load"].value < 1.3 < before


def test_a_moving_bias_evens_the_load_without_a_loss() -> None:
    module, x = made(n_experts=4, top_k=1, balance="none", bias_rate=0.01), crowd()
    before, terms = None, {}
    for _ in range(120):
        _, terms = in_training(module, x)
        before = terms["expert_load"].value if before is None else before
        assert "balance" not in terms
        module.rebalance()
    assert terms["expert_load"].value < 1.3 < before


def test_a_bias_moves_once_a_step_by_its_rate() -> None:
    module, x = made(n_experts=4, top_k=1, bias_rate=0.125), wave(1, 10, M, seed=9)
    load = torch.bincount(module.router(x[0]).experts.flatten(), minlength=4)
    in_training(module, x), in_training(module, x)  # two batches of one step
    assert (module.router.bias == 0).all()
    module.rebalance()
    assert module.router.bias.tolist() == (0.125 * torch.sign(load.double().mean() - load)).tolist()  # type: ignore[union-attr]
    moved = module.router.bias.clone()  # type: ignore[union-attr]
    module.rebalance()
    assert torch.equal(module.router.bias, moved), "nothing was fed since"
    module.eval()(x, passing(Layout.full(10)))
    module.rebalance()
    assert torch.equal(module.router.bias, moved), "evaluation doesn't count"
    assert "router.bias" in module.state_dict() and "router.bias" not in dict(module.named_parameters())


def test_router_statistics_match_their_definitions() -> None:
    module, x = made(router_z=0.5, top_k=2), wave(1, 10, M, seed=9)
    scores = x[0] @ module.router.weight.T
    p, top = scores.softmax(-1), scores.topk(2).indices
    terms = in_training(module, x)[1]
    load = torch.bincount(top.flatten(), minlength=5).double()
    wanted = {
        "expert_load": load.max() / load.mean(),
        "router_entropy": -(p * p.log()).sum(-1).mean(),
        "balance": 5 * (load / 20 * p.mean(0)).sum(),
        "router_z": scores.logsumexp(-1).square().mean(),
    }
    assert terms.keys() == wanted.keys()
    for name, value in wanted.items():
        assert terms[name].value.item() == pytest.approx(value.item(), rel=1e-5), name
    assert terms["router_z"].loss.item() == pytest.approx(0.5 * wanted["router_z"].item())  # type: ignore[union-attr]
    assert terms["expert_load"].loss is None and not terms["balance"].value.requires_grad
    run = passing(Layout.full(10))
    module.eval()(x, run)
    assert run.extras.terms() == {}


# -- values -----------------------------------------------------------------------------------------------------------


def test_half_precision_routes_in_single() -> None:
    module, x = made(), wave(1, 10, M, seed=9)
    half = made().bfloat16().eval()
    routed = half.router(x[0].bfloat16())
    assert routed.scores.dtype == routed.gates.dtype == torch.float32
    assert half(x.bfloat16()).dtype == torch.bfloat16
    torch.testing.assert_close(half(x.bfloat16()).double(), module.eval()(x), atol=0.1, rtol=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        assert module.float().router(x[0].float()).scores.dtype == torch.float32
        assert module(x.float()).dtype == torch.bfloat16


def test_costs_say_what_a_token_uses() -> None:
    shared = FeedForward(d_ff=7, gated=True, bias=False)
    cost = MixtureOfExperts(n_experts=5, d_ff=4, top_k=2, shared=shared, shared_gate=True).cost(M, tokens=3)
    expert, others = 3 * M * 4, M * (5 + 1) + 3 * M * 7
    assert (cost.parameters, cost.active) == (5 * expert + others, 2 * expert + others)
    assert cost.flops == 2 * 3 * (2 * expert + others)


def test_json_there_and_back() -> None:
    spec = MixtureOfExperts(n_experts=4, d_ff=8, shared=FeedForward(d_ff=8), capacity=1.25)
    assert FeedForwardLayer.from_dict(spec.to_dict()) == spec


@pytest.mark.parametrize(
    "given, said",
    [
        ({"top_k": 5}, "top_k=5 is more than n_experts=4"),
        ({"shared_gate": True}, "shared_gate needs a shared layer"),
        ({"capacity": 0}, "capacity: input should be greater than 0, not 0"),
        ({"balance": "swich"}, "balance: input should be 'switch', 'gshard', 'mixtral' or 'none', not 'swich'"),
        ({"score": "hash"}, "score: input should be 'softmax'"),
    ],
)
def test_wrong_values_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MixtureOfExperts.from_dict({"n_experts": 4, "d_ff": 8, **given})
