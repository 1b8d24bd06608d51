import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from train_stand_in import Tiny

import qkv
from qkv.training.optimizers import Muon, muon
from qkv.training.optimizers.muon import orthogonal

SIZES = {"d_model": 16, "n_heads": 2, "d_ff": 32, "vocab_size": 20}


def names_of(optimizer: torch.optim.Optimizer, state: str) -> set[str]:
    pairs = (pair for g in optimizer.param_groups for pair in zip(g["param_names"], g["params"], strict=True))
    return {name for name, p in pairs if state in optimizer.state[p]}


@given(rows=st.integers(1, 40), columns=st.integers(1, 40), exponent=st.floats(-6, 6), seed=st.integers(0, 99))
def test_all_directions_become_about_as_long(rows, columns, exponent, seed):
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=made) * 10**exponent
    y = orthogonal(x)
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    turned = u.mT @ y @ vt.mT  # U S' Vᵀ has a diagonal here, as far as bfloat16 goes
    strong = s > 0.05 * s.max()
    assert ((turned.diagonal()[strong] > 0.6) & (turned.diagonal()[strong] < 1.3)).all()
    assert (turned - turned.diagonal().diag()).abs().max() < 0.15


def test_zeros_stay_zeros():
    assert torch.equal(orthogonal(torch.zeros(3, 4)), torch.zeros(3, 4))


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize(("scale", "theirs"), [("rms", "match_rms_adamw"), ("original", "original")])
def test_steps_match_pytorch(scale, theirs, nesterov, monkeypatch):
    monkeypatch.setattr(muon, "bf16_instructions", lambda device: "here")  # which PyTorch's always computes in
    model = nn.ModuleList(nn.Linear(6, 10, bias=False) for _ in range(3))
    other = nn.ModuleList(nn.Linear(6, 10, bias=False) for _ in range(3))
    other.load_state_dict(model.state_dict())
    optimizer = Muon(lr=0.02, weight_decay=0.1, scale=scale, nesterov=nesterov).build(model)
    reference = torch.optim.Muon(other.parameters(), lr=0.02, weight_decay=0.1, nesterov=nesterov, adjust_lr_fn=theirs)
    for _ in range(4):
        for mine, its in zip(model.parameters(), other.parameters(), strict=True):
            mine.grad = torch.randn(10, 6)
            its.grad = mine.grad.clone()
        optimizer.step()
        reference.step()
    for mine, its in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-2, atol=1e-3)


def test_a_stack_of_matrices_is_so_many_matrices():
    model, alone = nn.Module(), nn.Module()
    model.stack = nn.Parameter(torch.randn(4, 5, 6))
    alone.matrix = nn.Parameter(model.stack[1].detach().clone())
    together, single = Muon().build(model), Muon().build(alone)
    model.stack.grad = torch.randn(4, 5, 6)
    alone.matrix.grad = model.stack.grad[1].clone()
    together.step()
    single.step()
    torch.testing.assert_close(model.stack[1], alone.matrix, rtol=1e-2, atol=1e-4)


def test_many_alike_are_moved_a_few_at_a_time(monkeypatch):
    def moved(at_once: int) -> list[torch.Tensor]:
        monkeypatch.setattr(muon, "STACK", at_once)
        torch.manual_seed(0)
        model = nn.ModuleList(nn.Linear(4, 4, bias=False) for _ in range(5))
        optimizer = Muon().build(model)
        for p in model.parameters():
            p.grad = torch.randn(4, 4)
        optimizer.step()
        return [p.detach() for p in model.parameters()]

    for few, all_at_once in zip(moved(32), moved(2**20), strict=True):
        torch.testing.assert_close(few, all_at_once, rtol=1e-2, atol=1e-4)


def test_the_matrices_of_hidden_layers_and_nothing_else():
    model = qkv.build(qkv.preset("gpt2", n_layers=1, max_positions=8, **SIZES))
    inside = ("attention.q", "attention.k", "attention.v", "attention.out", "feedforward.up", "feedforward.down")
    optimizer = Muon().build(model)
    assert names_of(optimizer, "momentum") == {f"decoder.blocks.0.{name}.weight" for name in inside}
    assert names_of(optimizer, "exp_avg") == {n for n, _ in model.named_parameters()} - names_of(optimizer, "momentum")


def test_a_separate_head_is_no_hidden_layer_and_neither_is_a_convolution():
    model = qkv.build(qkv.preset("transformer", n_layers=1, **SIZES).replace({"head.tied": False}))
    model.patches = nn.Conv1d(16, 16, 3)
    moved = names_of(Muon().build(model), "momentum")
    assert {"decoder.blocks.0.cross.q.weight", "encoder.blocks.0.feedforward.up.weight"} <= moved
    assert not {"head.weight", "encoder.embedding.weight", "patches.weight"} & moved


def test_our_own_convolutions_are_matrices_in_stems_and_in_heads_too():
    sizes = {"image": (16, 16), "patch": (4, 4), "d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 8}
    head = {"kind": "pixel-masks", "labels": 3, "widths": [4, 6]}
    model = qkv.build(qkv.preset("vit-base-16", **sizes, stem=(4, 6)).replace({"head": head}))
    optimizer = Muon().build(model)
    moved = names_of(optimizer, "momentum")
    assert {"encoder.embedding.stem.1.weight", "head.up.0.1.weight", "head.down.1.0.weight"} <= moved
    assert not {"head.out.weight", "encoder.embedding.stem.0.norm.weight"} & moved


def test_adamw_may_have_a_separate_rate_which_follows_the_schedule():
    optimizer = Muon(lr=0.02, adamw_lr=0.001, rates={"norm.*": 2.0}).build(Tiny())
    got = {name: group["scale"] for group in optimizer.param_groups for name in group["param_names"]}
    assert got["layer.weight"] == 1.0 and got["embedding.weight"] == pytest.approx(0.05)
    assert got["norm.bias"] == pytest.approx(0.1)


def test_a_model_without_such_matrices_is_a_clear_error():
    with pytest.raises(ValueError, match=r"muon moves the matrices of hidden layers.*take adamw"):
        Muon(freeze="layer.*").build(Tiny())
